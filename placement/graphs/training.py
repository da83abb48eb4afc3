"""Training graphs: a network's forward pass, its backward pass, and the updates of its weights.

The layout is that of TensorFlow 1, which Mirhoseini et al. (2017, 2018) placed:

1. A weight is a Variable of float32 with the bytes of its value, not unpacked by a Convert. Weights
   are the constants of more than one element that a gradient reaches. A model for inference does
   not say which constants are weights, so an initial state counts as one too.
2. Every output of the network has a loss, whose gradient takes 2 FLOPs an element.
3. Each input that depends on a weight has an operation that computes its gradient by the rules of
   `placement.graphs.gradients`. Tensors of the forward pass that it reads stay in memory for it.
4. If several operations read a tensor, one AddN sums its gradients, all of which wait in memory for
   it (TensorFlow's default). This includes weights that the steps of a network share.
5. A table in which rows are looked up (Gather) gets the gradient of those rows alone.
6. Every weight has an update on the weight's device, which owns the optimiser's state:

      sgd        w -= l * g                                                        2 FLOPs
      momentum   m = a * m + g, w -= l * m                                         4, a state
      adam       Kingma and Ba 2015, algorithm 1, its corrections in l            12, two states

Not modelled are labels, regularisation, clipping, and recomputation to save memory.
"""

import math
from typing import NamedTuple

import numpy as np

from placement import arguments
from placement.errors import UserError
from placement.graphs import coarsen, dag, gradients, opgraph
from placement.types import OpGraph

# Phases of `Training.phase`; WEIGHTS is the part of the backward pass for gradients of weights.
FORWARD, BACKWARD, WEIGHTS, UPDATE = range(4)
_ELEMENT_BYTES = 4  # of weights and of the optimiser's state
_LOSS_FLOPS = 2.0  # an element


class Optimiser(NamedTuple):
    """The work and memory of updating one element of a weight."""

    op_type: str
    flops: float
    states: int


OPTIMISERS = {
    "adam": Optimiser("ApplyAdam", 12, 2),
    "momentum": Optimiser("ApplyMomentum", 4, 1),
    "sgd": Optimiser("ApplyGradientDescent", 2, 0),
}


class TrainingGraph(NamedTuple):
    """A training graph of N operations, and the relation of each to the network."""

    graph: OpGraph  # `backward` is true outside the forward pass
    owner: np.ndarray  # int32 [N]: the operation of the network that this one is or serves
    phase: np.ndarray  # int8 [N]: FORWARD, BACKWARD, WEIGHTS or UPDATE


class _Tensor(NamedTuple):
    """One output of an operation."""

    op: int
    number: int  # as in `OpGraph.tensors`
    num_bytes: int
    has_rows: bool = False  # a gradient of the rows that were looked up, not of the whole table

    @property
    def size(self) -> float:
        """The number of elements."""
        return self.num_bytes / _ELEMENT_BYTES


class _Draft:
    """A training graph while operations are added to those of the network."""

    def __init__(self, network: OpGraph):
        self.network = network
        # The inputs of every operation in order, and the outputs of the network's that are read.
        self.inputs: list[list[_Tensor]] = [[] for _ in range(network.num_ops)]
        outputs: list[dict[int, _Tensor]] = [{} for _ in range(network.num_ops)]
        columns = network.senders, network.tensors, network.edge_bytes, network.receivers
        for sender, number, num_bytes, receiver in zip(*(c.tolist() for c in columns), strict=True):
            tensor = outputs[sender].setdefault(number, _Tensor(sender, number, num_bytes))
            self.inputs[receiver].append(tensor)
        self.outputs = [list(tensors.values()) for tensors in outputs]
        self.num_tensors = int(network.tensors.max(initial=-1)) + 1
        self.names = list(network.op_names)
        self.op_types = list(network.op_types)
        self.shapes = list(network.output_shapes)
        self.flops: list[float] = network.flops.tolist()
        self.weight_bytes: list[int] = network.weight_bytes.tolist()
        self.owner = list(range(network.num_ops))
        self.phase = [FORWARD] * network.num_ops

    def add_output(self, op: int, num_bytes: int, *, has_rows: bool = False) -> _Tensor:
        """Adds an output to an operation."""
        self.num_tensors += 1
        return _Tensor(op, self.num_tensors - 1, num_bytes, has_rows)

    def add_op(
        self,
        name: str,
        op_type: str,
        inputs: list[_Tensor],
        *,
        owner: int,
        shape_of: int,
        flops: float,
        phase: int = BACKWARD,
        weight_bytes: int = 0,
    ) -> int:
        """Adds an operation with the output shape of `shape_of`; returns its index."""
        self.names.append(name)
        self.op_types.append(op_type)
        self.shapes.append(self.shapes[shape_of])
        self.flops.append(flops)
        self.weight_bytes.append(weight_bytes)
        self.owner.append(owner)
        self.phase.append(phase)
        self.inputs.append(inputs)
        return len(self.names) - 1

    def add_sum(self, op: int, parts: list[_Tensor], phase: int, suffix: str = "") -> _Tensor:
        """Adds the sum of the gradients of one output of an operation."""
        if len(parts) == 1:
            return parts[0]
        full = [part for part in parts if not part.has_rows]
        num_bytes = full[0].num_bytes if full else sum(part.num_bytes for part in parts)
        added = self.add_op(
            f"gradients/{self.names[op]}/add_n{suffix}",
            "AddN" if full else "Concat",
            parts,
            owner=op,
            shape_of=op,
            flops=sum(part.size for part in parts[1:]) if full else 0.0,
            phase=phase,
        )
        return self.add_output(added, num_bytes, has_rows=not full)


def make_training_graph(
    graph: OpGraph, *, optimiser: str = "adam", colocate: bool = True
) -> TrainingGraph:
    """Adds the backward pass and the updates to a network.

    Args:
      graph: of a network with its constants as operations (`extract.op_graph`), without copies.
      optimiser: a key of `OPTIMISERS`.
      colocate: whether an operation's gradients share its device, as with TensorFlow's
        `colocate_gradients_with_ops`. Updates share the device of their weight in any case.

    Raises:
      ValueError: the constants of the graph are copied (`constants.copy_to_readers`).
      UserError: an unknown optimiser, a graph that has no constants as
        operations, no weight that a gradient reaches, or an operation without a gradient.
    """
    arguments.check_choice("optimiser", optimiser, OPTIMISERS)
    if len(graph.copy_sources):
        raise ValueError(f"graph {graph.name!r} lacks the edges of its copied constants")
    is_constant = np.array([op_type == "Constant" for op_type in graph.op_types])
    if (graph.weight_bytes[~is_constant] > 0).any():
        raise UserError(
            f"graph {graph.name!r} has weights inside its operations, and a training step has them "
            "as operations; leave constants=True"
        )
    # Leave out the Converts of weights: their readers read the weights.
    is_convert = np.array([op_type == "Convert" for op_type in graph.op_types])
    unpacks = is_convert[graph.receivers] & _find_constants(graph)[graph.senders]
    source = np.arange(graph.num_ops)
    source[graph.receivers[unpacks]] = graph.senders[unpacks]
    is_removed = source != np.arange(graph.num_ops)
    network_ops = np.flatnonzero(~is_removed).astype(np.int32)
    position = np.cumsum(~is_removed) - 1
    edges = np.flatnonzero(~is_removed[graph.receivers])
    network = opgraph.make_graph(
        name=graph.name,
        op_names=[graph.op_names[op] for op in network_ops],
        op_types=[graph.op_types[op] for op in network_ops],
        senders=position[source[graph.senders[edges]]],
        receivers=position[graph.receivers[edges]],
        edge_bytes=graph.edge_bytes[edges],
        output_shapes=[graph.output_shapes[op] for op in network_ops],
        flops=graph.flops[network_ops],
        weight_bytes=graph.weight_bytes[network_ops],
        colocation=graph.colocation[network_ops],
        tensors=graph.tensors[edges],
    )

    draft = _Draft(network)
    weight_gradients = _add_gradients(draft)
    if not weight_gradients:
        raise UserError(
            f"graph {graph.name!r} has no weight that a gradient reaches, so that there is nothing "
            "to train; leave training=1 out, or give a network with weights"
        )
    update = OPTIMISERS[optimiser]
    for weight, parts in weight_gradients.items():
        value, gradient = draft.outputs[weight][0], draft.add_sum(weight, parts, UPDATE)
        draft.op_types[weight] = "Variable"
        draft.weight_bytes[weight] = value.num_bytes
        draft.add_op(
            f"update/{draft.names[weight]}",
            update.op_type,
            [gradient, value],
            owner=weight,
            shape_of=weight,
            flops=update.flops * min(gradient.size, value.size),
            phase=UPDATE,
            weight_bytes=update.states * value.num_bytes,
        )

    owner, phase = np.array(draft.owner), np.array(draft.phase)
    colocation = network.colocation[owner]
    if not colocate:
        is_free = (phase == BACKWARD) | (phase == WEIGHTS)
        colocation[is_free] = colocation.max() + 1 + np.arange(is_free.sum())
    reads = [(tensor, op) for op, inputs in enumerate(draft.inputs) for tensor in inputs]
    try:
        training_graph = opgraph.make_graph(
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
    except opgraph.InvalidGraphError as error:  # the network uses a name such as 'update/w'
        raise UserError(str(error)) from error
    return TrainingGraph(training_graph, network_ops[draft.owner], phase.astype(np.int8))


def coarsen_training_graph(trained: TrainingGraph, assignment: np.ndarray) -> coarsen.Coarsening:
    """Coarsens a training graph as its network: every part has up to four, one a phase.

    The phases of a part stay apart, because together they would lie on a cycle and because
    gradients of weights can wait. Those that hold co-located operations are co-located. Gradients
    go against the network's edges, then come gradients of weights and then the updates, so that no
    cycle closes.

    Args:
      trained: N operations.
      assignment: int32, the part of each of the network's operations (`Coarsening.assignment`).
    """
    parts = np.stack([assignment[trained.owner], trained.phase])
    return coarsen.merge(trained.graph, np.unique(parts, axis=1, return_inverse=True)[1].ravel())


def _find_constants(graph: OpGraph) -> np.ndarray:
    """Returns bool [N]: the constants of more than one element."""
    ops = zip(graph.op_types, graph.output_shapes, strict=True)
    return np.array([op_type == "Constant" and math.prod(shape) > 1 for op_type, shape in ops])


def _list_ports(op_type: str, num_inputs: int) -> tuple[int, ...]:
    """Lists the input ports of an operation type that receive a gradient."""
    rule = gradients.RULES.get(op_type)
    if rule is None or rule.ports is None:
        return tuple(range(num_inputs))
    return tuple(port for port in rule.ports if port < num_inputs)


def _add_gradients(draft: _Draft) -> dict[int, list[_Tensor]]:
    """Adds the backward pass; returns the gradients of each weight, not summed yet."""
    network, order = draft.network, dag.topological_order(draft.network)
    # Whether an operation is a weight or depends on one through inputs that have gradients.
    depends_on_weight: list[bool] = _find_constants(network).tolist()
    for op in order.tolist():
        if network.op_types[op] in gradients.STOPS or depends_on_weight[op]:
            continue
        inputs = draft.inputs[op]
        # All inputs count if the type has no rule: should a gradient come, it is refused.
        ports = _list_ports(network.op_types[op], len(inputs))
        depends_on_weight[op] = any(depends_on_weight[inputs[port].op] for port in ports)

    tensor_gradients: dict[int, list[_Tensor]] = {}  # by the number of the tensor
    weight_gradients: dict[int, list[_Tensor]] = {}
    for op in order[::-1].tolist():
        if not depends_on_weight[op]:
            continue
        if network.op_types[op] == "Result":
            (output,) = draft.inputs[op]
            loss = draft.add_op(
                f"gradients/{draft.names[op]}/loss",
                "LossGrad",
                [output],
                owner=op,
                shape_of=output.op,
                flops=_LOSS_FLOPS * output.size,
            )
            gradient = draft.add_output(loss, output.num_bytes)
            tensor_gradients.setdefault(output.number, []).append(gradient)
            continue
        parts = [
            tensor_gradients[output.number]
            for output in draft.outputs[op]
            if output.number in tensor_gradients
        ]
        if parts and network.op_types[op] == "Constant":
            (weight_gradients[op],) = parts
        elif parts:
            output_gradients = [
                draft.add_sum(op, gradients_of_output, BACKWARD, suffix=str(index or ""))
                for index, gradients_of_output in enumerate(parts)
            ]
            for tensor, gradient in _differentiate(draft, op, output_gradients, depends_on_weight):
                tensor_gradients.setdefault(tensor.number, []).append(gradient)
    return weight_gradients


def _differentiate(
    draft: _Draft, op: int, output_gradients: list[_Tensor], depends_on_weight: list[bool]
) -> list[tuple[_Tensor, _Tensor]]:
    """Adds the gradients of an operation's inputs; returns pairs of an input and its gradient."""
    op_type, inputs, name = draft.op_types[op], draft.inputs[op], f"gradients/{draft.names[op]}"
    rule = gradients.RULES.get(op_type)
    if rule is None:
        raise UserError(
            f"graph {draft.network.name!r}: {draft.names[op]!r} is a {op_type}, through which no "
            "gradient is known to pass; leave training=1 out, or give a network of: "
            f"{', '.join(sorted(gradients.RULES))}"
        )
    ports = [p for p in _list_ports(op_type, len(inputs)) if depends_on_weight[inputs[p].op]]
    flops = rule.forward * draft.flops[op]
    flops += rule.per_output * sum(gradient.size for gradient in output_gradients)
    if rule.joint:
        reads = [*output_gradients, *(inputs if any(rule.reads_inputs) else ())]
        added = draft.add_op(
            name,
            rule.op_types[0],
            reads + (draft.outputs[op] if rule.reads_output else []),
            owner=op,
            shape_of=inputs[ports[0]].op,
            flops=flops + rule.per_input * sum(inputs[p].size for p in ports),
        )
        return [(inputs[p], draft.add_output(added, inputs[p].num_bytes)) for p in ports]

    pairs = []
    for port in ports:
        tensor, gradient = inputs[port], output_gradients[0]
        is_weight = draft.op_types[tensor.op] == "Constant"
        if op_type == "Gather" and is_weight:
            pairs.append((tensor, gradient._replace(has_rows=True)))
            continue
        phase = WEIGHTS if is_weight else BACKWARD
        # The last type is that of all further inputs; without one the gradient is passed on.
        position = rule.ports.index(port) if rule.ports else port
        if input_type := rule.op_types[min(position, len(rule.op_types) - 1)]:
            reads_itself, reads_others = rule.reads_inputs
            reads = output_gradients + [
                other
                for other_port, other in enumerate(inputs)
                if (reads_itself if other_port == port else reads_others)
            ]
            added = draft.add_op(
                f"{name}/{port}",
                input_type,
                reads + (draft.outputs[op][:1] if rule.reads_output else []),
                owner=op,
                shape_of=op if rule.elementwise else tensor.op,
                flops=flops + rule.per_input * tensor.size,
                phase=phase,
            )
            num_bytes = gradient.num_bytes if rule.elementwise else tensor.num_bytes
            gradient = draft.add_output(added, num_bytes)
        if rule.elementwise and gradient.num_bytes > tensor.num_bytes:  # the input was broadcast
            added = draft.add_op(
                f"{name}/{port}/sum",
                "ReduceSum",
                [gradient],
                owner=op,
                shape_of=tensor.op,
                flops=gradient.size,
                phase=phase,
            )
            gradient = draft.add_output(added, tensor.num_bytes)
        pairs.append((tensor, gradient))
    return pairs
