"""The settings of a run: every key with its default, its type and its line in the help.

The two command lines and the Python functions are made from these fields.
"""

import dataclasses
from collections.abc import Mapping
from typing import Any, Self, TypeVar

from placement import arguments
from placement.errors import UserError

T = TypeVar("T", bound=arguments.Value)


def _setting(default: T, summary: str) -> T:
    """Returns a dataclass field with a default and a one-line summary for the help."""
    field: T = dataclasses.field(default=default, metadata={"summary": summary})
    return field


@dataclasses.dataclass(frozen=True)
class Settings:
    """The settings of one run, converted once from a configuration or from arguments."""

    # A network of the zoo (inception_v3, resnet50, two_stream, bert_base, decoder, rnnlm, nmt), in
    # other sizes ('resnet:depth=18,size=96', 'bert:layers=4'); a model file (.xml, .onnx, .tflite,
    # .pb) or the folder of a TensorFlow SavedModel; a workload of Tarnawski et al. (.json), which
    # has its own devices and costs; or a synthetic graph, such as
    # 'synthetic:family=layered,ops=1000,seed=0'. The argument training=1 makes one training step
    # of a network (`placement.graphs.training`).
    graph: str = _setting("inception_v3", "a network, the path of a model, or synthetic:ops=N")
    # A JSON file suits names with separators (docs/MODELS.md).
    input_shapes: str = _setting(
        "", "shapes of dynamic inputs: x:1,3,224,224;ids:1,128, or a .json"
    )
    # For inputs that only accept some numbers: one value for all elements, one value each, or a
    # range to draw from. All other inputs are drawn at random from the seed, several times, and
    # the outputs are checked on every draw.
    input_values: str = _setting("", "values of inputs: rate:16000;lengths:5,3;image:0..255")
    # An .npz with one array per input name, of the input's shape or with a leading axis of samples.
    # Outputs are checked on all samples; the first one is timed.
    inputs: str = _setting("", "an .npz of real inputs for checking and timing")
    # The error of an output is its largest difference from the plain CPU's in f32, over the spread
    # of its values. 0: 0.1 if a device computes in bf16 or f16, else 0.001.
    max_error: float = _setting(0.0, "largest accepted output error, over the outputs' spread")
    # True: the full graph, as in HSDAG's paper. False: without constants and their conversions.
    constants: bool = _setting(True, "whether constants are operations of the graph")
    # 'GPU.0:memory=6GB' limits the memory of a device (docs/MODELS.md).
    # 'roofline:...' describes hardware that need not be present (kinds: docs/DEVICES.md).
    devices: str = _setting("auto", "auto, precisions, host, CPU,GPU.0, or roofline:cpu,gpu")
    # '' profiles the devices. With evaluate=simulate the devices of a saved profile may be absent.
    costs: str = _setting("", "the profile.json of another run; empty: profile the devices")
    # 'hetero' (OpenVINO's HETERO, objective 'serial') runs one submodel after another. 'concurrent'
    # runs the devices at the same time (objective 'makespan', or 'max_load' for a request stream).
    backend: str = _setting("concurrent", "concurrent, or hetero (one submodel after another)")
    objective: str = _setting("makespan", "serial, makespan, max_load or subgraph")
    # `placement.methods.learned` explains the hyper-parameters of learned methods.
    method: str = _setting("search", "the method of place: lns, hsdag:num_samples=16, ...")
    methods: str = _setting(
        "search,heft,single,hetero,random", "the methods of compare and solve: a list, or all"
    )
    graphs: str = _setting("", "the graphs of compare: a comma list; empty: the one of `graph`")
    seeds: int = _setting(1, "the number of seeds of compare, counted from `seed`")
    evaluate: str = _setting("simulate+verify", "simulate, measure or simulate+verify")
    # With 'ray', compare also spreads its cells over the hosts (docs/CLUSTER.md).
    measure_on: str = _setting("here", "here, or ray: on the hosts of a Ray cluster")
    # place bounds the possible gain before it searches, and stops where there is none.
    search_anyway: bool = _setting(False, "search even where no placement can be clearly faster")
    budget: int = _setting(4_000_000, "placements that each search evaluates")
    # Every search, learned or not, starts at the single devices and what heuristics find
    # (`placement.solvers.starts`), or at the single devices alone. Starts count in the budget.
    starts: str = _setting("heuristics", "where searches start: heuristics, or single (devices)")
    seed: int = _setting(0, "the seed of everything random")
    # Each of these has this limit: each search, compiling the placements to measure (at least 5 s
    # each), correcting costs, and finding the operations that a device computes wrong. The limit of
    # a learned search counts from its first step: compiling takes the time that it takes.
    time_limit_s: float = _setting(60.0, "seconds for each search, and for compiling placements")
    # Compilation is not included. Every placement is timed at least six times, and until it is
    # clear which is fastest. Choosing among several placements of a method takes a third of this
    # in addition.
    measure_s: float = _setting(15.0, "most seconds for timing the final placements")
    # `zero_shot` uses placement/methods/pretrained without it; `scheduler` starts untrained.
    init_from: str = _setting("", "a policy of pretrain or of an earlier search to start from")
    families: str = _setting("layered,series_parallel", "graph families of pretrain")
    members: int = _setting(8, "the number of graphs of each family of pretrain")

    @classmethod
    def from_mapping(cls, values: Mapping[str, Any]) -> Self:
        """Checks the keys and types of a mapping, such as a ConfigDict, and returns the settings.

        Lists of texts are joined with commas.

        Raises:
          UserError: an unknown key, or a value of another type; an int is a valid float.
        """
        types = {field.name: type(field.default) for field in dataclasses.fields(cls)}
        checked: dict[str, Any] = {}
        for key, value in values.items():
            arguments.check_choice("key", key, types)
            if types[key] is float and type(value) is int:
                value = float(value)
            if types[key] is str and isinstance(value, list | tuple):
                value = ",".join(map(str, value))
            if type(value) is not types[key]:
                raise UserError(f"{key} must be of type {types[key].__name__}, not {value!r}")
            checked[key] = value
        return cls(**checked)

    def refuse(self, key: str, reason: str) -> None:
        """Raises a UserError if a setting is set that a task does not take."""
        if (value := getattr(self, key)) != getattr(type(self), key):
            raise UserError(f"{reason}: leave out {key}={value!r}")

    def __repr__(self) -> str:
        """Shows the settings that differ from the defaults."""
        changed = [
            f"{field.name}={value!r}"
            for field in dataclasses.fields(self)
            if (value := getattr(self, field.name)) != field.default
        ]
        return f"Settings({', '.join(changed)})"

    def to_dict(self) -> dict[str, arguments.Value]:
        """Returns the values by key, in the order of the fields."""
        return dataclasses.asdict(self)
