"""JAX functions as OpenVINO models, through OpenVINO's experimental front end for JAX.

The front end translates a flat list of primitives. So a function is traced, its calls are inlined,
and everything that depends on no input is computed. The front end ignores unknown parameters, such
as the dilation of a convolution, so the model must compute the same on the example inputs.
"""

import contextlib
from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

import jax
import numpy as np
import openvino as ov
from jax.extend import core
from openvino import opset15 as ops
from openvino.frontend import ConversionExtension

from placement.errors import UserError
from placement.runtime.models import conversion, outputs

_REMEDY = "write it with operations that convert (docs/PYTHON.md), or place the part that does"
_CALLS = ("jit", "remat2", "custom_jvp_call", "custom_vjp_call")  # primitives that are a call


def convert(function: Callable[..., Any], example_inputs: Any) -> ov.Model:
    """Converts a function of arrays to a model with the shapes and types of its example inputs.

    Raises:
      UserError: the function cannot be traced or converted, or the model computes something else.
    """
    subject = f"JAX function {getattr(function, '__name__', type(function).__name__)}"
    flat = conversion.flatten_function(function, example_inputs, subject)
    try:
        program = jax.make_jaxpr(flat.function)(*flat.arrays)
    except Exception as error:  # the function's own code runs, which may raise anything
        raise conversion.make_tracing_error(subject, error) from error
    inlined = jax.make_jaxpr(partial(_inline, program.jaxpr, program.consts))(*flat.arrays)
    # OpenVINO 2026.4 adds an axis to the result of `select_n`.
    select = ConversionExtension(
        "select_n", lambda n: [ops.select(*map(n.get_input, (0, 2, 1))).output(0)]
    )
    model = conversion.convert(inlined, subject=subject, remedy=_REMEDY, extension=[select])
    conversion.set_inputs(model, flat.inputs, subject=subject)
    for port in (port for op in model.get_ops() for port in op.outputs()):
        # The front end also names tensors by addresses in this process.
        port.set_names({name for name in port.get_names() if not name.isdecimal()})

    arrays = [np.array(x, a.dtype) for x, a in zip(flat.arrays, program.in_avals, strict=True)]
    expected = [np.asarray(array) for array in jax.jit(core.jaxpr_as_fun(program))(*arrays)]
    compiled = ov.Core().compile_model(model, "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    computed = list(compiled(arrays).to_tuple())
    if list(map(np.shape, computed)) == list(map(np.shape, expected)):
        has_f16 = any(array.dtype == np.float16 for array in (*arrays, *expected))
        if outputs.compare(expected, computed).error <= (0.1 if has_f16 else 1e-3):
            return model
    raise UserError(f"OpenVINO converts {subject} to a model with other outputs; {_REMEDY}")


def _inline(jaxpr: core.Jaxpr, consts: Sequence[Any], *arrays: Any) -> list[Any]:
    """Returns the outputs of a jaxpr, with calls inlined and what is not traced computed."""
    values = dict(zip([*jaxpr.constvars, *jaxpr.invars], [*consts, *arrays], strict=True))

    def read(atom: Any) -> Any:
        return atom.val if isinstance(atom, core.Literal) else values[atom]

    for eqn in jaxpr.eqns:
        inputs, name = list(map(read, eqn.invars)), eqn.primitive.name
        if name in _CALLS:
            called = eqn.params["jaxpr" if "jaxpr" in eqn.params else "call_jaxpr"]
            inner, inner_consts = getattr(called, "jaxpr", called), getattr(called, "consts", ())
            results = _inline(inner, inner_consts, *inputs)
        else:
            is_traced = any(isinstance(value, jax.core.Tracer) for value in inputs)
            with contextlib.nullcontext() if is_traced else jax.ensure_compile_time_eval():
                results = eqn.primitive.bind(*inputs, **eqn.params)
            results = results if eqn.primitive.multiple_results else [results]
        values.update(zip(eqn.outvars, results, strict=True))
    return list(map(read, jaxpr.outvars))
