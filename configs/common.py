"""The keys that every configuration has, with their defaults.

A configuration file starts from `base()`, changes what it is about, and locks the result, so that a
misspelt key on the command line is refused.
"""

from typing import NamedTuple

from ml_collections import ConfigDict


class Key(NamedTuple):
    """A key: its default, whose type is that of every value, and what it means in one line."""

    default: bool | int | float | str
    summary: str


KEYS = {
    # A network of the zoo (inception_v3, resnet50, two_stream, bert_base, rnnlm, nmt), in other
    # sizes too ('resnet:depth=18,size=96', 'bert:layers=4'; an argument that is not valid is
    # answered with those that are), a path to .xml, .onnx, .tflite, .pb, a TensorFlow SavedModel's
    # folder or .json (a workload of Tarnawski et al., with devices and costs of its own), or a
    # synthetic graph such as 'synthetic:family=layered,ops=1000,seed=0'. A network or a model with
    # the argument training=1 is a step of its training (`placement.graphs.training`).
    "graph": Key("inception_v3", "a network, a model's path, or synthetic:ops=N"),
    # Shapes of dynamic inputs, such as 'images:1,3,224,224;ids:1,128'.
    "input_shapes": Key("", "shapes of dynamic inputs: images:1,3,224,224;ids:1,128"),
    # Values of inputs that not every number suits, such as 'rate:16000;lengths:5,3;image:0..255':
    # one for all elements, one each, or a range to draw from. The others are drawn at random from
    # the seed, several times: outputs are checked on all.
    "input_values": Key("", "values of inputs: rate:16000;image:0..255"),
    # Real inputs to check outputs on, and to time the first of: an .npz with an array for each
    # input by name, of its shape or with an axis of samples before.
    "inputs": Key("", "an .npz of real inputs, to check and to time with"),
    # True: the full view, as in HSDAG's paper. False: without constants and their conversions.
    "constants": Key(True, "whether constants are operations"),
    # 'auto', 'host', a comma list of OpenVINO devices such as 'CPU,GPU.0', or described hardware
    # that needs none, such as 'roofline:cpu,gpu,gpu' (kinds: docs/DEVICES.md).
    "devices": Key("auto", "auto, host, CPU,GPU.0, or roofline:cpu,gpu"),
    # What operations cost: '' profiles the devices; or a path to the profile.json of another run,
    # such as one of another machine, whose devices need not be here with evaluate=simulate.
    "costs": Key("", "the profile.json of another run; '' profiles the devices"),
    # How measured placements run: 'hetero' (OpenVINO's, one submodel after another; objective
    # 'serial') or 'concurrent' (devices at the same time; objective 'makespan', or 'max_load' for
    # the throughput of a stream of requests).
    "backend": Key("hetero", "hetero (one part after another) or concurrent"),
    # 'serial' (HETERO), 'makespan' (devices overlap), 'max_load' (pipeline) or 'subgraph'.
    "objective": Key("serial", "serial, makespan, max_load or subgraph"),
    # One method for --task=place. A learned one (hsdag, hierarchical, colocrl, placeto) takes its
    # hyper-parameters as arguments, such as 'hsdag:variant=paper,num_samples=16'; an unknown one is
    # answered with those that are valid. `placement.methods.learned` says where they are explained.
    "method": Key("hsdag", "of --task=place: lns, hsdag:variant=paper, ..."),
    # Of --task=compare: comma lists of methods ('all' of them, and more) and of graphs ('' is
    # config.graph), and how many seeds, from config.seed on.
    "methods": Key("all", "of --task=compare and solve: a comma list, or all"),
    "graphs": Key("", "of --task=compare: a comma list; '' is the graph"),
    "seeds": Key(1, "of --task=compare: how many, from the seed on"),
    "evaluate": Key("simulate+verify", "simulate, measure or simulate+verify"),
    # Where placements are measured: 'here', or on the hosts of a Ray cluster ('ray'), over which
    # --task=compare spreads its cells too (docs/CLUSTER.md).
    "measure_on": Key("here", "here, or ray: on the hosts of a Ray cluster"),
    # Placements evaluated by each search, the single devices included.
    "budget": Key(32_000, "placements that each search evaluates"),
    "seed": Key(0, "of all that is random"),
    # Wall time of each step: profiling, each search, compiling the placements to measure (5 s for
    # each placement at least), calibrating and checking, and explaining the best placement. Beyond
    # it a step does only what a run cannot do without, such as an inference on each device.
    "time_limit_s": Key(60.0, "seconds that each search may take, and every other step"),
    # Wall time of timing the placements in the final table, compilation not included; timing the
    # operations, for their costs, takes a fifth of it beside.
    "measure_s": Key(30.0, "seconds of timing the placements found, on the devices"),
    # A policy.msgpack of --task=pretrain, for `zero_shot` to place with, by default the one in
    # placement/methods/pretrained, and for `scheduler` to go on from, which by default it does not.
    "init_from": Key("", "the policy.msgpack of --task=pretrain to start from"),
    # Of --task=pretrain: families of networks (`placement.zoo.families`), and how many members of
    # each, from the seed on.
    "families": Key("layered,series_parallel", "of --task=pretrain: families to learn on"),
    "members": Key(8, "of --task=pretrain: networks of each family"),
    # Of --task=deploy: a point of --task=front; 0 deploys placement.json.
    "point": Key(0, "of --task=deploy: a point of the front; 0: placement.json"),
    # Of --task=profile: placements measured to calibrate the costs, and as many to check them.
    "calibration_placements": Key(60, "of --task=profile: placements to calibrate, and to check"),
}


def base() -> ConfigDict:
    """The common configuration, locked."""
    return ConfigDict({name: key.default for name, key in KEYS.items()}).lock()
