"""JAX functions as OpenVINO models, through OpenVINO's front end for JAX, which is experimental.

The front end translates a flat list of primitives. So a function is traced, calls are inlined,
loops of a fixed length are unrolled, and what depends on no input is computed. It has rules for
some primitives only: those that it lacks and that read nothing but tensors are given to it, as is
`select_n`, whose rule adds an axis in OpenVINO 2026.4. It passes over what it does not know of a
primitive, such as the dilation of a convolution; so the model must compute on the example inputs
what the function computes.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import openvino as ov
from jax import lax
from jax.extend import core
from openvino import opset15 as ops
from openvino.frontend import ConversionExtension

from placement.errors import UserError
from placement.runtime import devices
from placement.runtime.models import conversion, outputs
from placement.runtime.models.conversion import Flat

_MEND = "write it with operations that convert (docs/PYTHON.md), or place the part that does"

# Primitives that are a call -> the parameter with what they call.
_CALLS = {
    "jit": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}

# Rows of a table [N, ...] by their numbers [...]: the gather of an embedding, without parameters,
# which the front end does not show to rules from outside.
_rows_p = core.Primitive("rows")
_rows_p.def_abstract_eval(
    lambda table, rows: jax.core.ShapedArray((*rows.shape, *table.shape[1:]), table.dtype)
)


def _one(x: ov.Output) -> ov.Node:
    return ops.constant(1, x.get_element_type())


# What the front end lacks, of tensors alone.
_RULES: dict[str, Callable[..., ov.Node]] = {
    "abs": ops.abs,
    "acos": ops.acos,
    "and": ops.bitwise_and,
    "asin": ops.asin,
    "atan": ops.atan,
    "ceil": ops.ceiling,
    "clamp": lambda low, x, high: ops.minimum(ops.maximum(x, low), high),
    "cos": ops.cos,
    "cosh": ops.cosh,
    "exp2": lambda x: ops.power(ops.constant(2, x.get_element_type()), x),
    "expm1": lambda x: ops.subtract(ops.exp(x), _one(x)),
    "floor": ops.floor,
    "log": ops.log,
    "log1p": lambda x: ops.log(ops.add(x, _one(x))),
    "min": ops.minimum,
    "not": ops.bitwise_not,
    "or": ops.bitwise_or,
    "pow": ops.power,
    "rem": ops.mod,
    "rows": lambda table, rows: ops.gather(table, rows, np.int64(0)),
    "select_n": lambda which, off, on: ops.select(which, on, off),
    "sign": ops.sign,
    "sin": ops.sin,
    "sinh": ops.sinh,
    "tan": ops.tan,
    "xor": ops.bitwise_xor,
}


def convert(function: Callable[..., Any], example_inputs: Any) -> ov.Model:
    """The function as a model of the shapes and types of its example inputs.

    Args:
      function: of arrays, or of pytrees of them; what it closes over becomes constant.
      example_inputs: as of `placement.runtime.models.from_python.graph_from`.

    Raises:
      UserError: it cannot be traced or converted, or the model computes something else.
    """
    subject = f"JAX function {getattr(function, '__name__', type(function).__name__)}"
    flat = conversion.flatten(function, example_inputs, subject)
    program = _traced(flat, subject)
    model = conversion.convert(
        _flattened(program, flat.arrays, subject),
        subject=subject,
        mend=_MEND,
        extension=[_extension(name, rule) for name, rule in _RULES.items()],
    )
    conversion.set_inputs(model, flat.inputs, subject=subject)
    for port in (port for op in model.get_ops() for port in op.outputs()):
        # The front end also calls tensors by addresses in this process.
        port.set_names({name for name in port.get_names() if not name.isdecimal()})
    _check(model, program, flat.arrays, subject)
    return model


def _traced(flat: Flat, subject: str) -> core.ClosedJaxpr:
    try:
        return jax.make_jaxpr(flat.function)(*flat.arrays)
    except Exception as error:  # the function's own code runs, which may raise anything
        raise conversion.untraceable(subject, error) from error


def _flattened(program: core.ClosedJaxpr, arrays: Sequence[Any], subject: str) -> core.ClosedJaxpr:
    """The program without calls, loops and operations on constants.

    Raises:
      UserError: it returns what the front end has no name for.
    """
    flat = jax.make_jaxpr(partial(_evaluated, program.jaxpr, program.consts))(*arrays)
    returned = flat.jaxpr.outvars
    if len(set(map(id, returned))) < len(returned) or any(
        isinstance(atom, core.Literal) for atom in returned
    ):
        raise UserError(
            f"{subject} returns a number of its own, or one array twice, which OpenVINO cannot "
            "name; return every array once, and no number"
        )
    return flat


def _evaluated(jaxpr: core.Jaxpr, consts: Sequence[Any], *arrays: Any) -> list[Any]:
    """The outputs of a jaxpr for arrays, traced or not."""
    known = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arrays], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else known[atom]

    for eqn in jaxpr.eqns:
        known.update(zip(eqn.outvars, _applied(eqn, list(map(read, eqn.invars))), strict=True))
    return list(map(read, jaxpr.outvars))


def _applied(eqn: core.JaxprEqn, values: list[Any]) -> Sequence[Any]:
    """The outputs of an equation, by primitives that have a rule where there are such."""
    name = eqn.primitive.name
    if name in _CALLS:
        called = eqn.params[_CALLS[name]]
        return _evaluated(getattr(called, "jaxpr", called), getattr(called, "consts", ()), *values)
    is_constant = not any(isinstance(value, jax.core.Tracer) for value in values)
    if name in _REWRITTEN and not is_constant:
        return _REWRITTEN[name](eqn, *values)
    return _bound(eqn, values, is_constant=is_constant)


def _bound(eqn: core.JaxprEqn, values: Sequence[Any], *, is_constant: bool) -> Sequence[Any]:
    """The outputs of an equation by its own primitive, computed at once where nothing is traced."""
    with jax.ensure_compile_time_eval() if is_constant else contextlib.nullcontext():
        found = eqn.primitive.bind(*values, **eqn.params)
    return found if eqn.primitive.multiple_results else [found]


def _gathered(eqn: core.JaxprEqn, table: Any, indices: Any) -> Sequence[Any]:
    """A gather of whole rows by `_rows_p`; indices [..., 1] must be within the table."""
    numbers, width = eqn.params["dimension_numbers"], table.ndim - 1
    rows = numbers._replace(
        offset_dims=tuple(range(indices.ndim - 1, indices.ndim - 1 + width)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
    )
    if numbers != rows or eqn.params["slice_sizes"] != (1, *table.shape[1:]):
        return _bound(eqn, (table, indices), is_constant=False)
    return [_rows_p.bind(table, lax.squeeze(indices, (indices.ndim - 1,)))]


def _split(eqn: core.JaxprEqn, array: Any) -> Sequence[Any]:
    axis, ends = eqn.params["axis"], np.cumsum(eqn.params["sizes"]).tolist()
    starts = [0, *ends[:-1]]
    return [lax.slice_in_dim(array, i, j, axis=axis) for i, j in zip(starts, ends, strict=True)]


def _stacked(arrays: Sequence[Any], axis: int) -> Any:
    return lax.concatenate([lax.expand_dims(array, (axis,)) for array in arrays], axis)


def _unrolled(eqn: core.JaxprEqn, *values: Any) -> Sequence[Any]:
    """The outputs of a `scan`, step by step: the carry, then the steps' outputs stacked."""
    body, length = eqn.params["jaxpr"], eqn.params["length"]
    first, last = eqn.params["num_consts"], eqn.params["num_consts"] + eqn.params["num_carry"]
    consts, carry, sequences = values[:first], values[first:last], values[last:]
    steps = []
    for i in reversed(range(length)) if eqn.params["reverse"] else range(length):
        now = [lax.index_in_dim(sequence, i, keepdims=False) for sequence in sequences]
        found = _evaluated(body.jaxpr, body.consts, *consts, *carry, *now)
        carry = tuple(found[: len(carry)])
        steps.append(found[len(carry) :])
    if eqn.params["reverse"]:
        steps.reverse()
    return [*carry, *(_stacked(rows, 0) for rows in zip(*steps, strict=True))]


# What has no rule, by primitives that have one.
_REWRITTEN: dict[str, Callable[..., Sequence[Any]]] = {
    "gather": _gathered,
    "scan": _unrolled,
    "split": _split,
    "stack": lambda eqn, *arrays: [_stacked(arrays, eqn.params["axis"])],
}


def _extension(name: str, rule: Callable[..., ov.Node]) -> ConversionExtension:
    def converted(node: Any) -> list[ov.Output]:
        return [rule(*map(node.get_input, range(node.get_input_size()))).output(0)]

    return ConversionExtension(name, converted)


def _check(model: ov.Model, program: core.ClosedJaxpr, arrays: Sequence[Any], subject: str) -> None:
    """Compares what the plain f32 CPU makes of the example inputs with what JAX does.

    Raises:
      UserError: they differ.
    """
    avals = program.in_avals
    given = [np.array(array, aval.dtype) for array, aval in zip(arrays, avals, strict=True)]
    device = devices.reference_device()
    compiled = ov.Core().compile_model(model, device.name, dict(device.properties))
    request = compiled.create_infer_request()
    request.infer(given)
    found = [np.array(tensor.data) for tensor in request.output_tensors]
    evaluate = jax.jit(partial(jax.core.eval_jaxpr, program.jaxpr))
    reference = [np.asarray(array) for array in evaluate(program.consts, *given)]
    shapes, right = ([list(array.shape) for array in side] for side in (found, reference))
    if shapes != right:
        wrong = f"outputs {shapes} instead of {right}"
    else:
        error = outputs.compare(reference, found).error
        half = any(array.dtype == np.float16 for array in (*given, *reference))
        if error <= outputs.TOLERANCES["f16" if half else "f32"]:
            return
        wrong = f"outputs off by {error:.2g} of their spread"
    raise UserError(
        f"OpenVINO converts {subject} to a model that computes something else ({wrong}); {_MEND}"
    )
