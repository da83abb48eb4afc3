"""Training graphs: a network's forward pass, the backward pass, and the updates of its weights.

As TensorFlow 1 lays a training step out, which is what Mirhoseini et al. (2017, 2018) placed:

- A weight is a Variable of float32, with the bytes of its value; what only unpacks a stored one is
  left out. Weights are the constants of more than one element that a gradient reaches: frameworks
  say which they are, a model for inference does not. So an initial state is one too.
- Every output of the network has a loss, whose gradient it starts from: 2 FLOPs an element.
- Gradients go backwards by the rules of `placement.graphs.gradients`: an operation for each input
  that leads to a weight, which reads what the rule says, and so keeps it in memory until then.
- A tensor that several operations read has the sum of its gradients, by one AddN which all of them
  wait in memory for (TensorFlow's default): so have weights that the steps of a network share.
- A table of which rows are looked up (Gather) gets the gradient of those rows alone.
- Every weight has an update, on the weight's device, which owns the optimiser's state:

      sgd        w -= l * g                                                        2 FLOPs
      momentum   m = a * m + g, w -= l * m                                         4, a state
      adam       Kingma and Ba 2015, algorithm 1, its corrections in l            12, two states

Left out: the labels, regularisation, clipping, and what is recomputed to save memory.
"""

import dataclasses
import math
from typing import NamedTuple

import numpy as np

from placement import arguments
from placement.errors import UserError
from placement.graphs import coarsen, dag, gradients, opgraph
from placement.graphs.gradients import Rule
from placement.types import OpGraph

# Of `Training.phase`; WEIGHTS is what of the backward pass computes gradients of weights.
FORWARD, BACKWARD, WEIGHTS, UPDATE = range(4)
_ELEMENT_BYTES = 4  # of weights and of the optimiser's state
_LOSS_FLOPS = 2.0  # an element


class Optimiser(NamedTuple):
    """What updating a weight takes, an element of it."""

    op_type: str
    flops: float
    states: int


OPTIMISERS = {
    "adam": Optimiser("ApplyAdam", 12, 2),
    "momentum": Optimiser("ApplyMomentum", 4, 1),
    "sgd": Optimiser("ApplyGradientDescent", 2, 0),
}


class Training(NamedTuple):
    """A training graph of N operations, and what each belongs to."""

    graph: OpGraph  # `backward` is all that is not of the forward pass
    owner: np.ndarray  # int32 [N]: the operation of the network, by its index there
    phase: np.ndarray  # int8 [N]: FORWARD, BACKWARD, WEIGHTS or UPDATE


class _Tensor(NamedTuple):
    """One output of an operation."""

    op: int
    number: int  # as in `OpGraph.tensors`
    num_bytes: int
    rows: bool = False  # a gradient of rows that were looked up, not of the whole table

    @property
    def size(self) -> float:
        """Its elements."""
        return self.num_bytes / _ELEMENT_BYTES


@dataclasses.dataclass
class _Draft:
    """A training graph while operations are added to those of the network."""

    network: OpGraph
    inputs: list[list[_Tensor]]  # of every operation, in order
    outputs: list[list[_Tensor]]  # of the network's operations: those that are read
    names: list[str]
    op_types: list[str]
    shapes: list[tuple[int, ...]]
    flops: list[float]
    weight_bytes: list[int]
    owner: list[int]
    phase: list[int]
    num_tensors: int

    def tensor(self, op: int, num_bytes: int, *, rows: bool = False) -> _Tensor:
        """A new output of an operation."""
        self.num_tensors += 1
        return _Tensor(op, self.num_tensors - 1, num_bytes, rows)

    def add(
        self,
        name: str,
        op_type: str,
        reads: list[_Tensor],
        *,
        owner: int,
        like: int,
        flops: float,
        phase: int = BACKWARD,
        weight_bytes: int = 0,
    ) -> int:
        """Adds an operation whose output has the shape of that of `like`; returns its index."""
        self.names.append(name)
        self.op_types.append(op_type)
        self.shapes.append(self.shapes[like])
        self.flops.append(flops)
        self.weight_bytes.append(weight_bytes)
        self.owner.append(owner)
        self.phase.append(phase)
        self.inputs.append(reads)
        return len(self.names) - 1


def training(graph: OpGraph, *, optimiser: str = "adam", colocate: bool = True) -> Training:
    """Adds the backward pass and the updates to a network.

    Args:
      graph: of a network with its constants as operations (`extract.op_graph`).
      optimiser: a key of `OPTIMISERS`.
      colocate: whether an operation's gradients share its device, as with TensorFlow's
        `colocate_gradients_with_ops`; updates share that of their weight in any case.

    Raises:
      UserError: an unknown optimiser, a graph that is one of training or has no constants as
        operations, nothing that a gradient reaches, or an operation on the way that has none.
    """
    arguments.check("optimiser", optimiser, OPTIMISERS)
    _check(graph)
    network, kept = _unpacked(graph)
    order = dag.topological_order(network)
    leads = _leads_to_weights(network, order)
    draft = _draft(network)
    weights = _go_backwards(draft, leads, order)
    if not weights:
        raise UserError(
            f"graph {graph.name!r} has no weight that a gradient reaches, so that there is nothing "
            "to train; leave training=1 out, or give a network with weights"
        )
    for op, parts in weights.items():
        _update(draft, op, parts, OPTIMISERS[optimiser])
    return Training(_finished(draft, colocate), kept[draft.owner], np.array(draft.phase, np.int8))


def coarsened(trained: Training, assignment: np.ndarray) -> coarsen.Coarsening:
    """Coarsens a training graph as its network: every part has up to four, one a phase.

    They are apart since together they would lie on a cycle, and since gradients of weights can
    wait; those that hold co-located operations are co-located. What goes backwards goes against the
    network's edges, then come gradients of weights and then the updates, so that no cycle closes.

    Args:
      trained: N operations.
      assignment: int32, the part of each of the network's operations (`Coarsening.assignment`).
    """
    parts = np.stack([assignment[trained.owner], trained.phase])
    return coarsen.merge(trained.graph, np.unique(parts, axis=1, return_inverse=True)[1].ravel())


def _check(graph: OpGraph) -> None:
    constant = np.array([op_type == "Constant" for op_type in graph.op_types])
    if graph.backward.any():
        raise UserError(f"graph {graph.name!r} is a training graph already; leave training=1 out")
    if (graph.weight_bytes[~constant] > 0).any():
        raise UserError(
            f"graph {graph.name!r} has weights inside its operations, and a training step has them "
            "as operations; leave constants=True"
        )


def _unpacked(graph: OpGraph) -> tuple[OpGraph, np.ndarray]:
    """Leaves out Converts of weights, and returns which operations are kept, int32 [N]."""
    constant = _constants(graph)
    convert = np.array([op_type == "Convert" for op_type in graph.op_types])
    unpacks = convert[graph.receivers] & constant[graph.senders]
    source = np.arange(graph.num_ops)
    source[graph.receivers[unpacks]] = graph.senders[unpacks]
    gone = source != np.arange(graph.num_ops)
    kept = np.flatnonzero(~gone).astype(np.int32)
    position = np.cumsum(~gone) - 1
    edges = np.flatnonzero(~gone[graph.receivers])
    network = opgraph.make(
        name=graph.name,
        op_names=[graph.op_names[op] for op in kept],
        op_types=[graph.op_types[op] for op in kept],
        senders=position[source[graph.senders[edges]]],
        receivers=position[graph.receivers[edges]],
        edge_bytes=graph.edge_bytes[edges],
        output_shapes=[graph.output_shapes[op] for op in kept],
        flops=graph.flops[kept],
        weight_bytes=graph.weight_bytes[kept],
        colocation=graph.colocation[kept],
        tensors=graph.tensors[edges],
    )
    return network, kept


def _constants(graph: OpGraph) -> np.ndarray:
    """bool [N]: constants of more than one element."""
    each = zip(graph.op_types, graph.output_shapes, strict=True)
    return np.array([op_type == "Constant" and math.prod(shape) > 1 for op_type, shape in each])


def _leads_to_weights(graph: OpGraph, order: np.ndarray) -> np.ndarray:
    """bool [N]: whether an operation is a weight or depends on one where gradients pass."""
    leads: list[bool] = _constants(graph).tolist()
    starts, edges = dag.successors(
        graph.num_ops, graph.receivers, np.arange(graph.num_edges, dtype=np.int32)
    )
    for op in order.tolist():
        op_type = graph.op_types[op]
        if op_type in gradients.STOPS or leads[op]:
            continue
        senders = graph.senders[edges[starts[op] : starts[op + 1]]].tolist()
        # Of a type without a rule any input may: should a gradient come, it is refused.
        leads[op] = any(leads[senders[port]] for port in _ports(op_type, len(senders)))
    return np.array(leads)


def _ports(op_type: str, num_inputs: int) -> tuple[int, ...]:
    """The inputs that have a gradient."""
    rule = gradients.RULES.get(op_type)
    if rule is None or rule.ports is None:
        return tuple(range(num_inputs))
    return tuple(port for port in rule.ports if port < num_inputs)


def _draft(graph: OpGraph) -> _Draft:
    inputs: list[list[_Tensor]] = [[] for _ in range(graph.num_ops)]
    outputs: list[dict[int, _Tensor]] = [{} for _ in range(graph.num_ops)]
    columns = graph.senders, graph.tensors, graph.edge_bytes, graph.receivers
    for sender, number, num_bytes, receiver in zip(*(c.tolist() for c in columns), strict=True):
        tensor = outputs[sender].setdefault(number, _Tensor(sender, number, num_bytes))
        inputs[receiver].append(tensor)
    return _Draft(
        network=graph,
        inputs=inputs,
        outputs=[list(each.values()) for each in outputs],
        names=list(graph.op_names),
        op_types=list(graph.op_types),
        shapes=list(graph.output_shapes),
        flops=graph.flops.tolist(),
        weight_bytes=graph.weight_bytes.tolist(),
        owner=list(range(graph.num_ops)),
        phase=[FORWARD] * graph.num_ops,
        num_tensors=int(graph.tensors.max(initial=-1)) + 1,
    )


_Gradients = dict[int, list[_Tensor]]  # what comes back of a tensor, by its number


def _go_backwards(draft: _Draft, leads: np.ndarray, order: np.ndarray) -> dict[int, list[_Tensor]]:
    """Adds all gradients; returns those of each weight, which are not added up yet."""
    graph, found, weights = draft.network, _Gradients(), dict[int, list[_Tensor]]()
    for op in order[::-1].tolist():
        if not leads[op]:
            continue
        if graph.op_types[op] == "Result":
            (tensor,) = draft.inputs[op]
            found.setdefault(tensor.number, []).append(_loss(draft, op, tensor))
            continue
        coming = {t.number: found[t.number] for t in draft.outputs[op] if t.number in found}
        if coming and graph.op_types[op] == "Constant":
            (weights[op],) = coming.values()
        elif coming:
            given = [_added(draft, op, parts, nth) for nth, parts in enumerate(coming.values())]
            _differentiate(draft, op, given, leads, found)
    return weights


def _loss(draft: _Draft, result: int, tensor: _Tensor) -> _Tensor:
    op = draft.add(
        f"gradients/{draft.names[result]}/loss",
        "LossGrad",
        [tensor],
        owner=result,
        like=tensor.op,
        flops=_LOSS_FLOPS * tensor.size,
    )
    return draft.tensor(op, tensor.num_bytes)


def _added(
    draft: _Draft, op: int, parts: list[_Tensor], nth: int = 0, phase: int = BACKWARD
) -> _Tensor:
    """The sum of the gradients of the nth output of an operation."""
    if len(parts) == 1:
        return parts[0]
    whole = [part for part in parts if not part.rows]
    num_bytes = whole[0].num_bytes if whole else sum(part.num_bytes for part in parts)
    added = draft.add(
        f"gradients/{draft.names[op]}/add_n{nth or ''}",
        "AddN" if whole else "Concat",
        parts,
        owner=op,
        like=op,
        flops=sum(part.size for part in parts[1:]) if whole else 0.0,
        phase=phase,
    )
    return draft.tensor(added, num_bytes, rows=not whole)


def _differentiate(
    draft: _Draft, op: int, given: list[_Tensor], leads: np.ndarray, found: _Gradients
) -> None:
    """Adds what computes the gradients of an operation's inputs from those of its outputs."""
    op_type, inputs = draft.op_types[op], draft.inputs[op]
    rule = gradients.RULES.get(op_type)
    if rule is None:
        raise UserError(
            f"graph {draft.network.name!r}: {draft.names[op]!r} is a {op_type}, through which no "
            "gradient is known to pass; leave training=1 out, or give a network of: "
            f"{', '.join(sorted(gradients.RULES))}"
        )
    ports = [port for port in _ports(op_type, len(inputs)) if leads[inputs[port].op]]
    if rule.joint:
        computed = _joint(draft, op, rule, ports, given)
    else:
        computed = [_of_input(draft, op, rule, port, given) for port in ports]
    for port, gradient in zip(ports, computed, strict=True):
        found.setdefault(inputs[port].number, []).append(gradient)


def _joint(
    draft: _Draft, op: int, rule: Rule, ports: list[int], given: list[_Tensor]
) -> list[_Tensor]:
    inputs = draft.inputs[op]
    reads = [*given, *(inputs if any(rule.reads_inputs) else ())]
    added = draft.add(
        f"gradients/{draft.names[op]}",
        rule.op_types[0],
        [*reads, *(draft.outputs[op] if rule.reads_output else ())],
        owner=op,
        like=inputs[ports[0]].op,
        flops=_flops(draft, op, rule, given, sum(inputs[port].size for port in ports)),
    )
    return [draft.tensor(added, inputs[port].num_bytes) for port in ports]


def _of_input(draft: _Draft, op: int, rule: Rule, port: int, given: list[_Tensor]) -> _Tensor:
    """The gradient of one input."""
    tensor, name = draft.inputs[op][port], f"gradients/{draft.names[op]}/{port}"
    of_weight = draft.op_types[tensor.op] == "Constant"
    if draft.op_types[op] == "Gather" and of_weight:
        return given[0]._replace(rows=True)
    phase = WEIGHTS if of_weight else BACKWARD
    nth = rule.ports.index(port) if rule.ports else port
    op_type = rule.op_types[min(nth, len(rule.op_types) - 1)]
    gradient = given[0]
    if op_type:
        added = draft.add(
            name,
            op_type,
            [*given, *_read(draft, op, rule, port)],
            owner=op,
            like=op if rule.elementwise else tensor.op,
            flops=_flops(draft, op, rule, given, tensor.size),
            phase=phase,
        )
        num_bytes = given[0].num_bytes if rule.elementwise else tensor.num_bytes
        gradient = draft.tensor(added, num_bytes)
    if not rule.elementwise or gradient.num_bytes <= tensor.num_bytes:
        return gradient
    reads = [gradient]
    added = draft.add(
        *(f"{name}/sum", "ReduceSum", reads),
        owner=op,
        like=tensor.op,
        flops=gradient.size,
        phase=phase,
    )
    return draft.tensor(added, tensor.num_bytes)


def _read(draft: _Draft, op: int, rule: Rule, port: int) -> list[_Tensor]:
    """What of the forward pass the gradient of an input is computed from."""
    own, others = rule.reads_inputs
    each = enumerate(draft.inputs[op])
    reads = [tensor for n, tensor in each if (own if n == port else others)]
    return [*reads, *(draft.outputs[op][:1] if rule.reads_output else ())]


def _flops(draft: _Draft, op: int, rule: Rule, given: list[_Tensor], input_size: float) -> float:
    of_outputs = rule.per_output * sum(tensor.size for tensor in given)
    return rule.forward * draft.flops[op] + of_outputs + rule.per_input * input_size


def _update(draft: _Draft, weight: int, parts: list[_Tensor], optimiser: Optimiser) -> None:
    """Makes a constant a weight, which its gradients change."""
    value = draft.outputs[weight][0]
    gradient = _added(draft, weight, parts, phase=UPDATE)
    draft.op_types[weight] = "Variable"
    draft.weight_bytes[weight] = value.num_bytes
    draft.add(
        f"update/{draft.names[weight]}",
        optimiser.op_type,
        [gradient, value],
        owner=weight,
        like=weight,
        flops=optimiser.flops * min(gradient.size, value.size),
        phase=UPDATE,
        weight_bytes=optimiser.states * value.num_bytes,
    )


def _finished(draft: _Draft, colocate: bool) -> OpGraph:
    graph = draft.network
    reads = [(tensor, op) for op, each in enumerate(draft.inputs) for tensor in each]
    owner, phase = np.array(draft.owner), np.array(draft.phase)
    colocation = graph.colocation[owner]
    if not colocate:
        free = (phase == BACKWARD) | (phase == WEIGHTS)
        colocation[free] = colocation.max() + 1 + np.arange(free.sum())
    try:
        return opgraph.make(
            name=graph.name,
            op_names=draft.names,
            op_types=draft.op_types,
            senders=[tensor.op for tensor, _ in reads],
            receivers=[op for _, op in reads],
            edge_bytes=[tensor.num_bytes for tensor, _ in reads],
            tensors=[tensor.number for tensor, _ in reads],
            output_shapes=draft.shapes,
            flops=draft.flops,
            weight_bytes=draft.weight_bytes,
            colocation=colocation,
            backward=phase != FORWARD,
        )
    except opgraph.InvalidGraphError as error:  # names that the backward pass gives as well
        raise UserError(str(error)) from error
