"""JAX functions as OpenVINO models, through OpenVINO's experimental front end for JAX.

The front end translates a flat list of primitives. So a function is traced, its calls are inlined,
its loops of fixed length are unrolled, and everything that depends on no input is computed. The
front end has rules for some primitives only. `_RULES` adds rules for primitives that read only
tensors, and replaces that of `select_n`, which adds an axis in OpenVINO 2026.4. `_REWRITTEN`
expresses other primitives by these. The front end ignores parameters of a primitive that it does
not know, such as the dilation of a convolution. Therefore the model must compute the same as the
function on the example inputs.
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

_MEND = "write it with operations that convert (docs/PYTHON.md), or place the part that does"

# Primitives that are a call -> the parameter that holds the called jaxpr.
_CALLS = {
    "jit": "jaxpr",
    "remat2": "jaxpr",
    "custom_jvp_call": "call_jaxpr",
    "custom_vjp_call": "call_jaxpr",
}

# A primitive for the gather of an embedding: the rows of a table [N, ...] at indices [...]. It has
# no parameters, because the front end does not pass parameters to added rules.
_rows_p = core.Primitive("rows")
_rows_p.def_abstract_eval(
    lambda table, rows: jax.core.ShapedArray((*rows.shape, *table.shape[1:]), table.dtype)
)


def _constant(value: int, x: ov.Output) -> ov.Node:
    return ops.constant(value, x.get_element_type())


# Rules for primitives of tensors only that the front end lacks.
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
    "exp2": lambda x: ops.power(_constant(2, x), x),
    "expm1": lambda x: ops.subtract(ops.exp(x), _constant(1, x)),
    "floor": ops.floor,
    "log": ops.log,
    "log1p": lambda x: ops.log(ops.add(x, _constant(1, x))),
    "min": ops.minimum,
    "not": ops.bitwise_not,
    "or": ops.bitwise_or,
    "pow": ops.power,
    "rem": ops.mod,
    "rows": lambda table, rows: ops.gather(table, rows, np.int64(0)),
    "select_n": lambda condition, if_false, if_true: ops.select(condition, if_true, if_false),
    "sign": ops.sign,
    "sin": ops.sin,
    "sinh": ops.sinh,
    "tan": ops.tan,
    "xor": ops.bitwise_xor,
}


def convert(function: Callable[..., Any], example_inputs: Any) -> ov.Model:
    """Converts a function to a model with the shapes and types of its example inputs.

    Args:
      function: a function of arrays, or of pytrees of arrays; the values that it closes over become
        constants.
      example_inputs: as for `placement.runtime.models.from_python.graph_from`.

    Raises:
      UserError: the function cannot be traced or converted, or the model computes something else.
    """
    subject = f"JAX function {getattr(function, '__name__', type(function).__name__)}"
    flat = conversion.flatten_function(function, example_inputs, subject)
    try:
        program = jax.make_jaxpr(flat.function)(*flat.arrays)
    except Exception as error:  # the function's own code runs, which may raise anything
        raise conversion.make_tracing_error(subject, error) from error
    inlined = jax.make_jaxpr(partial(_evaluate, program.jaxpr, program.consts))(*flat.arrays)
    returned = inlined.jaxpr.outvars
    returns_literal = any(isinstance(atom, core.Literal) for atom in returned)
    if returns_literal or len(set(map(id, returned))) < len(returned):
        raise UserError(
            f"{subject} returns a number of its own, or one array twice, which OpenVINO cannot "
            "name; return every array once, and no number"
        )
    model = conversion.convert(
        inlined,
        subject=subject,
        mend=_MEND,
        extension=[_make_extension(name, rule) for name, rule in _RULES.items()],
    )
    conversion.set_inputs(model, flat.inputs, subject=subject)
    for port in (port for op in model.get_ops() for port in op.outputs()):
        # The front end also names tensors by addresses in this process.
        port.set_names({name for name in port.get_names() if not name.isdecimal()})
    _check_outputs(model, program, flat.arrays, subject)
    return model


def _evaluate(jaxpr: core.Jaxpr, consts: Sequence[Any], *arrays: Any) -> list[Any]:
    """Returns the outputs of a jaxpr, with calls inlined and unsupported primitives rewritten.

    Args:
      jaxpr: the program.
      consts: the values of its constants.
      arrays: its inputs, traced or not. Equations on values that are not traced are computed.
    """
    value_of = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arrays], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else value_of[atom]

    results: Sequence[Any]
    for eqn in jaxpr.eqns:
        inputs = list(map(read, eqn.invars))
        name = eqn.primitive.name
        is_traced = any(isinstance(value, jax.core.Tracer) for value in inputs)
        if name in _CALLS:
            called = eqn.params[_CALLS[name]]
            called_consts = getattr(called, "consts", ())
            results = _evaluate(getattr(called, "jaxpr", called), called_consts, *inputs)
        elif name in _REWRITTEN and is_traced:
            results = _REWRITTEN[name](eqn, *inputs)
        else:
            results = _bind(eqn, inputs, is_traced=is_traced)
        value_of.update(zip(eqn.outvars, results, strict=True))
    return list(map(read, jaxpr.outvars))


def _bind(eqn: core.JaxprEqn, values: Sequence[Any], *, is_traced: bool) -> Sequence[Any]:
    """Returns the outputs of an equation by its own primitive, computed now unless it is traced."""
    with contextlib.nullcontext() if is_traced else jax.ensure_compile_time_eval():
        result = eqn.primitive.bind(*values, **eqn.params)
    return result if eqn.primitive.multiple_results else [result]


def _rewrite_gather(eqn: core.JaxprEqn, table: Any, indices: Any) -> Sequence[Any]:
    """Expresses a gather of whole rows by `_rows_p`; indices [..., 1] must be within the table."""
    num_row_axes = table.ndim - 1
    dimension_numbers = eqn.params["dimension_numbers"]
    row_dimension_numbers = dimension_numbers._replace(
        offset_dims=tuple(range(indices.ndim - 1, indices.ndim - 1 + num_row_axes)),
        collapsed_slice_dims=(0,),
        start_index_map=(0,),
    )
    gathers_rows = eqn.params["slice_sizes"] == (1, *table.shape[1:])
    if dimension_numbers != row_dimension_numbers or not gathers_rows:
        return _bind(eqn, (table, indices), is_traced=True)
    return [_rows_p.bind(table, lax.squeeze(indices, (indices.ndim - 1,)))]


def _rewrite_split(eqn: core.JaxprEqn, array: Any) -> Sequence[Any]:
    axis, ends = eqn.params["axis"], np.cumsum(eqn.params["sizes"]).tolist()
    starts = [0, *ends[:-1]]
    return [lax.slice_in_dim(array, i, j, axis=axis) for i, j in zip(starts, ends, strict=True)]


def _stack(arrays: Sequence[Any], axis: int) -> Any:
    return lax.concatenate([lax.expand_dims(array, (axis,)) for array in arrays], axis)


def _rewrite_scan(eqn: core.JaxprEqn, *values: Any) -> Sequence[Any]:
    """Unrolls a `scan`; returns the carry, then the steps' outputs stacked."""
    body, length = eqn.params["jaxpr"], eqn.params["length"]
    num_consts, num_carry = eqn.params["num_consts"], eqn.params["num_carry"]
    consts, carry = values[:num_consts], values[num_consts : num_consts + num_carry]
    sequences = values[num_consts + num_carry :]
    step_outputs = []
    for i in reversed(range(length)) if eqn.params["reverse"] else range(length):
        slices = [lax.index_in_dim(sequence, i, keepdims=False) for sequence in sequences]
        results = _evaluate(body.jaxpr, body.consts, *consts, *carry, *slices)
        carry = tuple(results[:num_carry])
        step_outputs.append(results[num_carry:])
    if eqn.params["reverse"]:
        step_outputs.reverse()
    return [*carry, *(_stack(rows, 0) for rows in zip(*step_outputs, strict=True))]


# Primitives without a rule -> functions that express them by primitives with a rule.
_REWRITTEN: dict[str, Callable[..., Sequence[Any]]] = {
    "gather": _rewrite_gather,
    "scan": _rewrite_scan,
    "split": _rewrite_split,
    "stack": lambda eqn, *arrays: [_stack(arrays, eqn.params["axis"])],
}


def _make_extension(name: str, rule: Callable[..., ov.Node]) -> ConversionExtension:
    def convert_node(node: Any) -> list[ov.Output]:
        return [rule(*map(node.get_input, range(node.get_input_size()))).output(0)]

    return ConversionExtension(name, convert_node)


def _check_outputs(
    model: ov.Model, program: core.ClosedJaxpr, example_arrays: Sequence[Any], subject: str
) -> None:
    """Compares the model's outputs on the plain f32 CPU with JAX's, for the example inputs.

    Raises:
      UserError: they differ.
    """
    avals = program.in_avals
    inputs = [
        np.array(array, aval.dtype) for array, aval in zip(example_arrays, avals, strict=True)
    ]
    device = devices.reference_device()
    compiled = ov.Core().compile_model(model, device.name, dict(device.properties))
    request = compiled.create_infer_request()
    request.infer(inputs)
    computed = [np.array(tensor.data) for tensor in request.output_tensors]
    evaluate = jax.jit(partial(jax.core.eval_jaxpr, program.jaxpr))
    reference = [np.asarray(array) for array in evaluate(program.consts, *inputs)]
    shapes, reference_shapes = ([list(a.shape) for a in side] for side in (computed, reference))
    if shapes != reference_shapes:
        difference = f"outputs {shapes} instead of {reference_shapes}"
    else:
        error = outputs.compare(reference, computed).error
        has_f16 = any(array.dtype == np.float16 for array in (*inputs, *reference))
        if error <= outputs.TOLERANCES["f16" if has_f16 else "f32"]:
            return
        difference = f"outputs off by {error:.2g} of their spread"
    raise UserError(
        f"OpenVINO converts {subject} to a model that computes something else ({difference}); "
        f"{_MEND}"
    )
