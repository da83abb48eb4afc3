"""Packaging. The version is read from `placement/__init__.py` without importing it."""

import re
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
VERSION = re.search(r'__version__ = "(.+)"', (ROOT / "placement/__init__.py").read_text("utf-8"))[1]

# A floor is the release the tests ran with, not the oldest that might work.
CORE = [
    "absl-py>=2.5",
    "chex>=0.1.92",
    "click>=8.4",
    "filelock>=4.2",
    "flax>=0.12.8",
    "jax>=0.10.2",
    "jraph==0.0.6.dev0",
    "markdown-it-py>=4.3",
    "ml_collections>=1.1",
    "numpy>=2.4",
    "openvino>=2026.4",
    "optax>=0.2.8",
    "psutil>=7.2",
    "rich>=15.0",
    "scipy>=1.17",
    "tensorboardX>=2.6.5",
]
PLOTS = ["matplotlib>=3.11"]
SOLVERS = ["ortools>=9.15", "pymetis>=2025.2"]
EXTRAS = {
    "solvers": SOLVERS,
    "plots": PLOTS,
    "torch": ["torch>=2.13"],
    "gpu": ["jax[cuda12]"],
    "distributed": ["ray>=2.60"],
    "docs": ["furo>=2025.12", "myst-parser>=5.2", "sphinx>=9.0"],
    "test": [
        *PLOTS,
        *SOLVERS,
        "axe-playwright-python>=0.1.8",
        "hypothesis>=6.170",
        "mypy>=2.4",
        "onnx>=1.23",
        "playwright>=1.65",
        'pyopen-wakeword>=1.1; platform_system == "Linux"',
        "pytest>=9.2",
        "pytest-timeout>=2.4",
        "pytest-xdist>=3.8",
        "ray>=2.60",
        "ruff>=0.17",
        "torch==2.13.0",  # whose tracing names operations, which tests expect
    ],
}

setup(
    name="placement",
    version=VERSION,
    description="Device placement of neural networks on OpenVINO devices, in JAX",
    long_description=(ROOT / "README.md").read_text("utf-8"),
    long_description_content_type="text/markdown",
    author="The placement authors",
    license="Apache-2.0",
    python_requires=">=3.11",
    packages=find_packages(include=["placement", "placement.*"]),
    package_data={
        "placement": [
            "py.typed",
            "reporting/page/*",
            "methods/pretrained/*",
            "suite/version_*/*",
            "runtime/deployment/loader.cpp",
        ]
    },
    entry_points={"console_scripts": ["placement = placement.cli:entry"]},
    install_requires=CORE,
    extras_require=EXTRAS,
    classifiers=[
        "Development Status :: 4 - Beta",
        "Intended Audience :: Developers",
        "Intended Audience :: Science/Research",
        "Programming Language :: Python :: 3",
        "Programming Language :: Python :: 3.11",
        "Topic :: Scientific/Engineering :: Artificial Intelligence",
        "Typing :: Typed",
    ],
)
