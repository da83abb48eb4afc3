"""The keys that every configuration has, with their defaults.

A configuration file starts from `base()`, changes what it is about, and locks the result, so that a
misspelt key on the command line is refused.
"""

from ml_collections import ConfigDict


def base() -> ConfigDict:
    """The common configuration, locked."""
    config = ConfigDict()
    # A network of the zoo (inception_v3, resnet50, two_stream, bert_base, rnnlm, nmt), in other
    # sizes too ('resnet:depth=18,size=96', 'bert:layers=4'; an argument that is not valid is
    # answered with those that are), a path to .xml, .onnx, .tflite, .pb or .json (a workload of
    # Tarnawski et al., with devices and costs of its own), or a synthetic graph such as
    # 'synthetic:family=layered,ops=1000,seed=0'.
    config.graph = "inception_v3"
    # Shapes of dynamic inputs, such as 'images:1,3,224,224;ids:1,128'.
    config.input_shapes = ""
    # Values of inputs that not every number suits, such as 'rate:16000;lengths:5,3': one for all
    # elements, or one each. The others are drawn at random from the seed.
    config.input_values = ""
    # True: the full view, as in HSDAG's paper. False: without constants and their conversions.
    config.constants = True
    # 'auto', 'host', a comma list of OpenVINO devices such as 'CPU,GPU.0', or described hardware
    # that needs none, such as 'roofline:cpu,gpu,gpu' (kinds: docs/DEVICES.md).
    config.devices = "auto"
    # What operations cost: '' profiles the devices; or a path to the profile.json of another run,
    # such as one of another machine, whose devices need not be here with evaluate=simulate.
    config.costs = ""
    # How measured placements run: 'hetero' (OpenVINO's, one submodel after another; objective
    # 'serial') or 'concurrent' (devices at the same time; objective 'makespan', or 'max_load' for
    # the throughput of a stream of requests).
    config.backend = "hetero"
    # 'serial' (HETERO), 'makespan' (devices overlap), 'max_load' (pipeline) or 'subgraph'.
    config.objective = "serial"
    # One method for --task=place. A learned one (hsdag, hierarchical, colocrl, placeto) takes its
    # hyper-parameters as arguments, such as 'hsdag:variant=paper,num_samples=16'; an unknown one is
    # answered with those that are valid. `experiments.learned` says where they are explained.
    config.method = "hsdag"
    # Of --task=compare: comma lists of methods (or 'all') and of graphs ('' is config.graph), and
    # how many seeds, from config.seed on.
    config.methods = "all"
    config.graphs = ""
    config.seeds = 1
    # 'simulate', 'measure' or 'simulate+verify'.
    config.evaluate = "simulate+verify"
    # Placements evaluated by each search, the single devices included.
    config.budget = 32_000
    config.seed = 0
    # Wall time of each search.
    config.time_limit_s = 60.0
    # Wall time of timing the placements in the final table, compilation not included.
    config.measure_s = 30.0
    # Of --task=profile: placements measured to calibrate the costs, and as many to check them.
    config.calibration_placements = 60
    return config.lock()
