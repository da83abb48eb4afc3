"""The import rules of the project, checked on every source file without running it."""

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parent.parent

# What each part of `placement/` may import of the others, beside itself and what all may import.
_SHARED = {"errors", "arguments", "stored_jit"}
_CORE = {"types", "graphs", "costs"}
_ALLOWED = {
    # In functions, so that importing `placement` stays light.
    "__init__": {"methods", "runtime", "types", "problem", "pipeline", "policies"},
    "errors": set(),
    "arguments": set(),
    "files": set(),
    "stored_jit": {"files"},
    "types": set(),
    "graphs": {"types"},
    "costs": {"types", "graphs", "files"},
    "simulators": _CORE,
    "problem": _CORE | {"simulators"},
    "analysis": _CORE | {"simulators", "problem"},
    "policies": _CORE | {"simulators", "problem"},
    "environments": _CORE | {"simulators", "problem"},
    "solvers": _CORE | {"simulators", "problem"},
    "suite": _CORE | {"files", "simulators", "problem"},
    "learning": _CORE | {"simulators", "problem", "policies", "solvers"},
    "search": _CORE | {"simulators", "problem", "analysis", "solvers"},
    "testing": _CORE | {"problem", "policies", "learning"},
    # Where the core meets packages, programs and files: `runtime.scotch`, the shipped policy.
    "methods": _CORE
    | {"files", "simulators", "problem", "policies", "solvers", "learning", "search", "runtime"},
    "runtime": _CORE | {"files"},
    "zoo": _CORE,
    "reporting": _CORE | {"files"},
    "pipeline": _CORE
    | {"files", "simulators", "policies", "solvers", "learning", "search", "methods"}
    | {"problem", "analysis", "runtime", "zoo", "reporting", ""},  # "": `placement.__version__`
    "cli": {"files", "pipeline", ""},
}
# The rooms of `runtime`, each with those that it may import of the others, beside itself and the
# modules that are in none.
_ROOMS = {
    "models": set(),
    "execution": {"models"},
    "measurement": {"models", "execution"},
    "deployment": {"models", "execution", "measurement"},
    "cluster": {"models", "execution", "measurement"},
}
_PURE = set(_ALLOWED) - {"methods", "runtime", "reporting", "pipeline", "suite", "cli"}
_PURE -= {"files", "stored_jit"}
# Clocks, files, processes, global state: what a pure function has no use for.
_IMPURE = {
    "asyncio",
    "datetime",
    "glob",
    "importlib",
    "io",
    "logging",
    "multiprocessing",
    "os",
    "pathlib",
    "pickle",
    "random",
    "shutil",
    "signal",
    "socket",
    "subprocess",
    "sys",
    "tempfile",
    "threading",
    "time",
}
_EXEMPT = {  # solvers must stop in time or when asked to; packages may be missing or not needed
    ("placement/__init__.py", "importlib"),
    ("placement/errors.py", "importlib"),
    ("placement/zoo/__init__.py", "importlib"),
    ("placement/solvers/limits.py", "time"),
    ("placement/solvers/native.py", "threading"),
}
# Libraries that belong to one place: a folder, a part of `placement`, or a file.
_HOMES = {
    "openvino": ("placement/runtime/", "placement/zoo/"),
    "matplotlib": ("placement/reporting/figures/",),
    "rich": ("placement/reporting/", "placement/pipeline/", "experiments/"),
    "tensorboardX": ("placement/reporting/",),
    "ml_collections": ("experiments/", "configs/"),
    "absl": ("experiments/main.py",),
    "ray": ("placement/runtime/cluster.py",),
}


def imported(source: str, package: str) -> Iterator[str]:
    """Dotted names of everything that a file imports, wherever in the file.

    Args:
        source: The file's text.
        package: The dotted package that the file is in, from which relative imports start.
    """
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            parents = package.split(".")[: len(package.split(".")) - node.level + 1]
            origin = ".".join([*(parents if node.level else []), *filter(None, [node.module])])
            yield from (f"{origin}.{alias.name}" for alias in node.names)


def _reachable(path: str) -> set[str]:
    """The rooms of `runtime` that a file there may import; `cluster` is a module."""
    room = path.split("/")[2].removesuffix(".py")
    return _ROOMS.get(room, set()) | {room}


def breaches(path: str, source: str) -> list[str]:
    """What is wrong with the imports of one file, `path` being relative to the repository."""
    folders = path.split("/")[:-1]
    part = path.removesuffix(".py").split("/")[1] if folders[0] == "placement" else None
    found = []
    for name in imported(source, ".".join(folders)):
        top, _, rest = name.partition(".")
        homes = _HOMES.get(top)
        if homes and not path.startswith(homes):
            found.append(f"{path} imports {name}, which belongs in {' or '.join(homes)}")
        if part is None:
            continue
        if top == "placement" and rest.split(".")[0] not in _ALLOWED[part] | _SHARED | {part}:
            found.append(f"{path} imports {name} against the order of the layers")
        room = rest.split(".")[1] if rest.startswith("runtime.") else None
        if part == "runtime" and room in _ROOMS and room not in _reachable(path):
            found.append(f"{path} imports {name} against the order of the rooms")
        if top in ("experiments", "configs"):
            found.append(f"{path} imports {name}: the library knows nothing of experiments")
        if part in _PURE and top in _IMPURE and (path, top) not in _EXEMPT:
            found.append(f"{path} imports {name}, but {part} is pure")
    return found


def _sources() -> list[Path]:
    return [
        path
        for top in ("placement", "experiments", "configs")
        for path in sorted((ROOT / top).rglob("*.py"))
    ]


def test_no_file_breaks_rules():
    sources = _sources()
    assert {path.parts[len(ROOT.parts)] for path in sources} >= {"placement", "experiments"}
    found = [
        breach
        for path in sources
        for breach in breaches(path.relative_to(ROOT).as_posix(), path.read_text("utf-8"))
    ]
    assert not found, "\n".join(found)


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("placement/types.py", "from placement.graphs import dag"),
        ("placement/graphs/dag.py", "from placement import costs"),
        ("placement/graphs/dag.py", "from ..simulators import serial"),
        ("placement/simulators/serial.py", "from placement.problem import Problem"),
        ("placement/problem.py", "from placement.solvers import base"),
        ("placement/solvers/programs/program_search.py", "import placement.policies.hsdag"),
        ("placement/policies/hsdag.py", "from placement.learning import ppo"),
        ("placement/simulators/serial.py", "def f():\n    from placement.runtime import devices"),
        ("placement/runtime/measurement/local.py", "from placement.simulators import serial"),
        ("placement/reporting/runs.py", "from placement.zoo import resnet"),
        ("placement/learning/trainer.py", "import placement.pipeline.loading"),
        ("placement/methods/learned.py", "from experiments import benchmarks"),
        ("placement/solvers/base.py", "from placement import methods"),
        ("placement/learning/trainer.py", "from configs import common"),
        ("placement/learning/trainer.py", "import time"),
        ("placement/solvers/programs/program_search.py", "from os import path"),
        ("placement/solvers/local_search.py", "import time"),
        ("placement/solvers/limits.py", "import os"),
        ("placement/zoo/bert.py", "import pathlib"),
        ("placement/graphs/dag.py", "import openvino as ov"),
        ("placement/__init__.py", "from placement.simulators import serial"),
        ("placement/__init__.py", "import openvino as ov"),
        ("placement/pipeline/loading.py", "import openvino"),
        ("placement/pipeline/loading.py", "from absl import flags"),
        ("placement/costs/tables.py", "import ml_collections"),
        ("placement/pipeline/report.py", "import matplotlib.pyplot as plt"),
        ("placement/pipeline/console/metrics.py", "from tensorboardX import SummaryWriter"),
        ("placement/runtime/devices.py", "def f():\n    import ray"),
    ],
)
def test_a_planted_breach_is_caught(path, source):
    assert len(breaches(path, source)) == 1


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("placement/learning/ppo.py", "from placement import policies\nimport optax"),
        ("placement/graphs/dag.py", "from . import opgraph\nfrom ..types import OpGraph"),
        ("placement/runtime/measurement/local.py", "import time\nimport openvino as ov"),
        ("placement/solvers/limits.py", "import time"),
        ("placement/reporting/figures/plots.py", "import os\nfrom matplotlib import figure"),
        ("experiments/main.py", "from absl import app, flags\nfrom ml_collections import x"),
        ("configs/smoke.py", "from configs import common\nimport ml_collections"),
    ],
)
def test_allowed_imports_are_no_breach(path, source):
    assert breaches(path, source) == []


def test_docstrings_name_existing_objects():
    """A reference such as `base.Settings` is to a module, or to a name that its module defines."""
    texts = {
        "/" + path.relative_to(ROOT).with_suffix("").as_posix().removesuffix("/__init__"): text
        for path in (ROOT / "placement").rglob("*.py")
        if (text := path.read_text("utf-8"))
    }
    missing = []
    for path, text in texts.items():
        for module, name in re.findall(r"`((?:[a-z_]+\.)*[a-z_]+)\.(\w*[a-z])\b", text):
            folder = f"/{module.replace('.', '/')}"
            homes = [home for other, home in texts.items() if other.endswith(folder)]
            is_module = any(other.endswith(f"{folder}/{name}") for other in texts)
            is_file = name in ("json", "jsonl", "md")
            defined = re.compile(rf'^\s*(?:class |def |")?{name}\b', re.MULTILINE)
            if homes and not (is_module or is_file or any(map(defined.search, homes))):
                missing.append(f"{path}: {module}.{name}")
    assert not missing


def test_programs_start_at_their_end():
    for path in (*(ROOT / "experiments").rglob("*.py"), *(ROOT / "placement").rglob("*.py")):
        statements = ast.parse(path.read_text("utf-8")).body
        starts = [s for s in statements if isinstance(s, ast.If) and "__name__" in ast.dump(s.test)]
        assert not starts or starts == statements[-1:], path


def test_runs_import_what_they_use():
    """Solvers, policies, networks and figures are imported when a run uses them."""
    code = "import sys, placement.pipeline.place; print(*sys.modules)"
    printed = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT)
    loaded = [name for name in printed.stdout.split() if name.startswith("placement")]
    assert "placement.problem" in loaded
    assert len(loaded) <= 120
    unused = ("learning", "policies", "search", "solvers.heuristics", "zoo.bert", "reporting.page")
    assert not [n for n in loaded if n.startswith(tuple(f"placement.{part}" for part in unused))]
    assert not {"flax", "optax", "scipy.optimize"} & set(printed.stdout.split())
