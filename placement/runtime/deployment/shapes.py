"""Static variants of a deployed model: one for each shape of its inputs, compiled at first use.

A folder whose model had dynamic inputs also holds that model. HETERO does not run every part of a
dynamic model, so each new shape gets a static model of its own, with every operation on the device
that it was placed on. The placement was made for one shape; it is correct for the others, but
another one might be faster there.
"""

import hashlib
from collections import OrderedDict
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import openvino as ov

from placement import files
from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.deployment import service
from placement.runtime.errors import raise_if_exhausted, summarise_error
from placement.runtime.execution.executor import Executor
from placement.runtime.models import frontend, outputs

DYNAMIC_FILE, DYNAMIC_WEIGHTS = "dynamic.xml", "dynamic.bin"

_MAX_VARIANTS = 8  # compiled at the same time, besides the placed one; the oldest is dropped
_REMEDY = "deploy it again"

Shapes = tuple[tuple[int, ...], ...]  # of each input, in order


class ShapeCheck(NamedTuple):
    """The outputs of a deployed model for shapes that were not placed."""

    shapes: Shapes
    comparison: outputs.Comparison | None  # with the plain f32 CPU; None if the shapes are refused
    refusal: str  # the reason; '' without one


def save(model: ov.Model, folder: Path) -> str:
    """Writes a dynamic model into a folder and returns the digest of its files."""
    ov.save_model(model, folder / DYNAMIC_FILE, compress_to_fp16=False)
    return _compute_digest(folder)


def _compute_digest(folder: Path) -> str:
    digest = hashlib.sha256()
    for name in (DYNAMIC_FILE, DYNAMIC_WEIGHTS):
        digest.update(files.read_bytes(folder / name, remedy=_REMEDY))
    return digest.hexdigest()


class Variants:
    """Runs a dynamic model, one static variant for each shape."""

    def __init__(
        self,
        folder: Path,
        digest: str,
        compile_model: Callable[[ov.Model], ov.CompiledModel | Executor],
    ):
        """Reads the model.

        Args:
          folder: the deployed folder.
          digest: of the files, as `save` returned it.
          compile_model: makes an `ov.CompiledModel` or an executor of a static, prepared model.

        Raises:
          UserError: the files are missing or have changed.
        """
        if _compute_digest(folder) != digest:
            raise UserError(
                f"{str(folder / DYNAMIC_FILE)!r} or its weights have changed since they were "
                f"written; {_REMEDY}"
            )
        self.model = frontend.load(str(folder / DYNAMIC_FILE))
        self._compile = compile_model
        self._runners: OrderedDict[Shapes, service.Runner] = OrderedDict()

    @property
    def partial_shapes(self) -> list[ov.PartialShape]:
        """The shapes that each input accepts."""
        return [port.get_partial_shape() for port in self.model.inputs]

    def prepare(self, shapes: Shapes) -> ov.Model:
        """Returns the static model for these shapes.

        Raises:
          UserError: the model does not accept them.
        """
        shape_by_name = {
            frontend.input_names(port.get_node())[0]: shape
            for port, shape in zip(self.model.inputs, shapes, strict=True)
            if port.get_partial_shape().is_dynamic
        }
        return frontend.prepare(self.model, frontend.format_shapes(shape_by_name))

    def clear(self) -> None:
        """Drops all compiled variants."""
        self._runners.clear()

    def runner(self, shapes: Shapes) -> service.Runner:
        """Returns a request of the variant for these shapes; the first call compiles it.

        Raises:
          UserError: the model does not accept them, its operations differ from those that were
            placed, or OpenVINO cannot compile it.
        """
        if shapes not in self._runners:
            model = self.prepare(shapes)
            try:
                compiled = self._compile(model)
            except RuntimeError as error:
                raise_if_exhausted(error)
                listed = ", ".join(str(list(shape)) for shape in shapes)
                raise UserError(
                    f"OpenVINO cannot compile the model for inputs of the shapes {listed}: "
                    f"{summarise_error(error)}; pass other shapes"
                ) from error
            self._runners[shapes] = (
                compiled if isinstance(compiled, Executor) else compiled.create_infer_request()
            )
            if len(self._runners) > _MAX_VARIANTS:
                self._runners.popitem(last=False)
        self._runners.move_to_end(shapes)
        return self._runners[shapes]


def propose_shapes(partial_shapes: Sequence[ov.PartialShape], placed: Shapes) -> Iterator[Shapes]:
    """Yields shapes near the placed ones that fit the dynamic dimensions.

    All dynamic dimensions change in the same way, or only those of the first axis. A model may
    refuse some of these shapes.
    """
    proposed = {placed}
    for only_first in (True, False):
        for change in (lambda size: 2 * size, lambda size: size + 1, lambda size: size // 2):
            shapes = tuple(
                tuple(
                    _clip(change(size), dimension)
                    if dimension.is_dynamic and (axis == 0 or not only_first)
                    else size
                    for axis, (size, dimension) in enumerate(zip(shape, partial, strict=True))
                )
                for shape, partial in zip(placed, partial_shapes, strict=True)
            )
            if shapes not in proposed:
                proposed.add(shapes)
                yield shapes


def _clip(size: int, dimension: ov.Dimension) -> int:
    highest = dimension.get_max_length()  # -1 if there is no limit
    return max(1, dimension.get_min_length(), size if highest < 0 else min(size, highest))


def check(
    variants: Variants,
    placed: Shapes,
    infer: Callable[[list[np.ndarray]], list[np.ndarray]],
    *,
    reset_state: Callable[[], None] | None = None,
) -> list[ShapeCheck]:
    """Compares outputs for other shapes than the placed ones with those of the plain f32 CPU.

    A stateful model first runs with the placed shapes each time, so that the comparison includes
    the state that moves from shape to shape. The plain CPU then runs the dynamic model.

    Args:
      variants: of the deployed model.
      placed: the shapes that were placed.
      infer: the deployed network's.
      reset_state: the deployed network's; None if the model has no state.

    Returns:
      One entry for each of at most two shapes that the model accepts.
    """
    checks: list[ShapeCheck] = []
    config = dict(devices.reference_device().properties)
    for shapes in propose_shapes(variants.partial_shapes, placed):
        if len(checks) == 2:
            break
        session = [shapes] if reset_state is None else [placed, shapes]
        try:
            models = [variants.prepare(entry) for entry in session]
            arrays = [frontend.example_inputs(model, seed=0) for model in models]
            plain_model = models[0] if reset_state is None else variants.model
            plain = ov.Core().compile_model(plain_model, "CPU", config).create_infer_request()
            expected = [
                output
                for entry in arrays
                for output in service.run(plain, [ov.Tensor(array) for array in entry])
            ]
        except (UserError, RuntimeError):  # the model itself does not work with these shapes
            continue
        try:
            if reset_state is not None:
                reset_state()
            deployed = [output for entry in arrays for output in infer(entry)]
            checks.append(ShapeCheck(shapes, outputs.compare(expected, deployed), ""))
        except UserError as error:
            checks.append(ShapeCheck(shapes, None, str(error)))
    return checks
