"""A model with the types of its tensors in one run, and what several analyzers derive from both:

how often each node runs, the bytes that a kernel of several nodes must move, and the MACs that no
kernel can leave out.
"""

from collections.abc import Callable, Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from tracer.analyzers.cost import count as counting
from tracer.analyzers.cost.parameters import QuantizedTypes, Sources, sources
from tracer.graph import tensor_type
from tracer.graph.model import Address, Dataflow, Model, Node, Scope
from tracer.graph.operators import CONVOLUTIONS, WHOLE_PRODUCTS, RulesByOperator
from tracer.graph.shape_inference import Call, TensorTypes
from tracer.graph.tensor_type import TensorType, Types, refined
from tracer.records.trace import Kernel


@dataclass(frozen=True)
class Observation:
    """Types of tensors by path of the graph and name, and calls per inference by node key.

    `varying` has the calls of nodes, by key, whose types differ from call to call.
    """

    types: Mapping[Address, TensorType] = field(repr=False)
    calls: Mapping[str, float] = field(repr=False)
    varying: Mapping[str, Sequence[Call]] = field(repr=False)

    def applied(self, model: Model, types: TensorTypes) -> tuple[TensorTypes, tuple[str, ...]]:
        """Returns the types of the run, and notes on what inference has otherwise."""
        updated, differences = types.updated(self.types, self.varying), self.differences(types)
        if not differences:
            return updated, ()
        flow = model.dataflow
        first: dict[str, list[Node]] = {}
        behind = 0
        for node in model.nodes:
            if any(address in differences for address in flow.outputs_of(node)):
                if any(address in differences for address in flow.read(node)):
                    behind += 1
                else:
                    first.setdefault(node.qualified_type, []).append(node)
        notes = []
        for op_type, nodes in first.items():
            at = next(address for address in flow.outputs_of(nodes[0]) if address in differences)
            inferred, observed = differences[at]
            more = f" and {len(nodes) - 1:,} more" if len(nodes) > 1 else ""
            notes.append(
                f"'{nodes[0].key}'{more} ({op_type}): the run has {observed}, where inference has "
                f"{inferred}; the run counts"
            )
        if behind:
            what = "nodes behind have other shapes in the run than by inference too"
            notes.append(f"{behind:,} {what}")
        return updated, tuple(notes)

    def differences(self, types: TensorTypes) -> dict[Address, tuple[TensorType, TensorType]]:
        """Returns the inferred and the observed type of tensors where they contradict."""
        found = {}
        for (path, name), observed in self.types.items():
            inferred = types.tensors.get(path, {}).get(name)
            if inferred is None or refined(inferred, observed) == refined(observed, inferred):
                continue
            if inferred.shape != observed.shape:  # else only the type has another name
                found[path, name] = inferred, observed
        return found


def needed(model: Model, types: TensorTypes, kernels: Sequence[Kernel]) -> bool:
    """Returns whether a run without optimisation has to tell the shapes.

    So it is where sizes depend on data, in bodies, and where `kernels` of the optimised model have
    other shapes than were inferred.
    """
    if len(model.scopes) > 1:
        return True
    is_open = any(
        (kind := types.of(name, node.scope)) is None or kind.concrete is None
        for node in model.nodes
        for name in filter(None, node.outputs)
    )
    return is_open or bool(observe(model, kernels).differences(types))


def observe(model: Model, kernels: Sequence[Kernel]) -> Observation:
    """Returns types and calls from the kernels of an unoptimised run.

    A node of a body without a kernel did not run: the other branch was taken. An operator that the
    runtime expands into others is recognised by the tensor it computes.
    """
    flow, names = model.dataflow, _Names(model)
    calls = {node.key: 0.0 for node in model.nodes if node.scope.owner is not None}
    written: dict[Address, TensorType] = {}
    read: dict[Address, TensorType] = {}
    varying: dict[str, Sequence[Call]] = {}
    for kernel in kernels:
        made = [(kernel.scope, name) for name in kernel.outputs if name]
        keys = {flow.makers[address].key for address in made if address in flow.makers}
        for key in keys or {kernel.node} - {None}:
            calls[str(key)] = max(calls.get(str(key), 0.0), kernel.calls)
            if kernel.varying:
                varying[str(key)] = [
                    (each.calls, names.of_call(kernel, each.inputs, each.outputs))
                    for each in kernel.varying
                ]
        outputs = names.of_call(kernel, (), kernel.output_types)
        written |= {at: t for n, t in outputs.items() if (at := (kernel.scope, n)) in flow.makers}
        read |= names.of_body(kernel)
    return Observation(read | written, calls, varying)


class _Names:
    """Finds the tensors that kernels read and write, by the types that the runtime tells."""

    def __init__(self, model: Model) -> None:
        self._flow = model.dataflow
        self._scopes = {scope.path: scope for scope in model.scopes}
        self._stored = {
            (scope.path, weight.name): tensor_type.from_initializer(weight)
            for scope in model.scopes
            for weight in scope.graph.initializer
        }
        self._fed = {
            (scope.path, value.name)
            for scope in model.scopes
            if scope.owner is not None
            for value in scope.graph.input
        }

    def of_call(self, kernel: Kernel, inputs: Types, outputs: Types) -> dict[str, TensorType]:
        """Returns the types of tensors in a call, by name in the graph of the kernel.

        None where the runtime does not tell the types of all. It leaves out weights that it packed.
        """
        names = [name for name in kernel.outputs if name]
        types = self._inputs(kernel, inputs)
        if len(names) == len(outputs):
            types |= zip(names, outputs, strict=True)
        return types

    def of_body(self, kernel: Kernel) -> dict[Address, TensorType]:
        """Returns the types of the inputs of bodies that a kernel reads."""
        scope = self._scopes.get(kernel.scope)
        if scope is None or scope.owner is None:
            return {}
        types = self._inputs(kernel, kernel.input_types)
        addresses = {self._flow.address(name, scope): kind for name, kind in types.items()}
        return {at: kind for at, kind in addresses.items() if at in self._fed}

    def _inputs(self, kernel: Kernel, types: Types) -> dict[str, TensorType]:
        found: dict[str, TensorType] = {}
        names, left = [name for name in kernel.inputs if name], list(types)
        scope = self._scopes.get(kernel.scope)
        for place, name in enumerate(names):
            stored = self._stored.get(self._flow.address(name, scope)) if scope else None
            is_packed = stored is not None and (not left or stored.shape != left[0].shape)
            if is_packed and len(names) - place > len(left):
                continue
            if not left:
                return {}
            found[name] = left.pop(0)
        return {} if left else found


@dataclass(frozen=True)
class Aliases:
    """`viewed` gives the tensor whose bytes a view shows, `all` every name of the same bytes."""

    viewed: Mapping[Address, Address]
    all: Mapping[Address, tuple[Address, ...]]

    def root(self, tensor: Address) -> Address:
        """Returns the tensor that owns the bytes."""
        return self.viewed.get(tensor, tensor)

    def names(self, tensor: Address) -> tuple[Address, ...]:
        """Returns all tensors with the bytes of this one, including itself."""
        root = self.root(tensor)
        return self.all.get(root, (root,))


def _is_view(op: counting.Operation) -> bool:
    rule = counting.find_rule(op.node.domain, op.op_type)
    if rule is None or rule.traffic is counting.everything:  # most operators, told at once
        return False
    if not op.has(0) or not op.outputs():
        return False
    try:
        moves_nothing = rule.traffic(op) == (0, 0)
        size = op.output().nbytes
        return moves_nothing and size is not None and size == op.input(0).nbytes
    except (counting.UnknownWorkError, ValueError, IndexError):
        # ranks or attributes no operator allows
        return False


@dataclass(frozen=True)
class TypedModel:
    """A model whose tensors have these `types`. What follows from them is computed once."""

    model: Model
    types: TensorTypes = field(repr=False)

    @cached_property
    def facts(self) -> counting.Facts:
        """Types and constants, as counting rules look them up."""
        return counting.facts_of(self.model, self.types)

    @cached_property
    def operations(self) -> tuple[counting.Operation, ...]:
        """The nodes with typed operands, in the order of the model."""
        return tuple(counting.Operation(node, self.facts) for node in self.model.nodes)

    @property
    def flow(self) -> Dataflow:
        """Makers and readers of each tensor."""
        return self.model.dataflow

    @cached_property
    def aliases(self) -> Aliases:
        """The views, outputs of operators that move no bytes by their rule: they share bytes."""
        viewed: dict[Address, Address] = {}
        for op in self.operations:
            node = op.node
            if _is_view(op):
                source = self.flow.address(node.inputs[0], node.scope)
                viewed[node.scope.path, node.outputs[0]] = viewed.get(source, source)
        names: dict[Address, list[Address]] = {}
        for tensor, root in viewed.items():
            names.setdefault(root, [root]).append(tensor)
        return Aliases(viewed, {root: tuple(tensors) for root, tensors in names.items()})

    @cached_property
    def sources(self) -> Sources:
        """The stored tensors from which each constant tensor is derived."""
        return sources(self.model, self.facts, self.quantized_types)

    @cached_property
    def quantized_types(self) -> QuantizedTypes:
        """The types of the numbers that nodes multiply: those before they are dequantised."""
        return QuantizedTypes(self.model, self.types)


Trips = tuple[int, str]
"""Executions of a body for each execution of its owner, and a note where they are assumed."""


def executions_per_run(
    model: Model, facts: counting.Facts, calls: Mapping[str, float]
) -> tuple[dict[str, float], tuple[str, ...]]:
    """Returns the executions of each node in one run, by key, and the assumptions behind them.

    `calls` are observed executions and take precedence over shapes and constants. A node that is
    not in `calls` runs as often as the other nodes of its body; the main graph runs once. Nested
    bodies multiply.
    """
    observed: dict[str, float] = {}  # executions of each body with an observed node, by its path
    for node in model.nodes:
        if node.key in calls and node.scope.owner is not None:
            path = node.scope.path
            observed[path] = max(observed.get(path, 0), calls[node.key])
    repeats: dict[str, float] = {}
    bodies: dict[str, float] = {"": 1}
    owners: dict[str, dict[str, None]] = {}
    for node in model.nodes:
        body = node.scope.path
        if body not in bodies:
            assert node.scope.owner is not None
            bodies[body], note = _executions(node.scope, facts, repeats, observed)
            if note and repeats[node.scope.owner.key]:
                of_note = owners.setdefault(f"({node.scope.owner.op_type}): {note}", {})
                of_note[node.scope.owner.key] = None
        repeats[node.key] = calls.get(node.key, bodies[body])
    return repeats, tuple(f"{brief_list(tuple(keys))} {note}" for note, keys in owners.items())


def brief_list(keys: Sequence[str]) -> str:
    """Returns the first node, and how many more there are."""
    return f"{keys[0]} and {len(keys) - 1:,} more" if len(keys) > 1 else keys[0]


def _executions(
    scope: Scope, facts: counting.Facts, repeats: Mapping[str, float], observed: Mapping[str, float]
) -> tuple[float, str]:
    """Returns the executions of a body in one run, with a note if they are not observed."""
    owner = scope.owner
    assert owner is not None
    if scope.path in observed:
        return observed[scope.path], ""
    if owner.op_type == "If":  # the other branch took the remaining executions
        branches = (f"{owner.key}.{name}" for name in ("then_branch", "else_branch"))
        taken = [observed[path] for path in branches if path in observed]
        if taken:
            return max(0, repeats[owner.key] - sum(taken)), ""
    rule = _TRIPS.get(owner.op_type) if not owner.domain else None
    count, note = 1, "how often it runs its body is unknown; the body is counted once"
    if rule is not None:
        try:
            count, note = rule(counting.Operation(owner, facts), scope)
        except (counting.UnknownWorkError, IndexError, ValueError) as error:
            note = f"the trip count is unknown ({error}); the body is counted once"
    return repeats[owner.key] * count, note


_TRIPS = RulesByOperator[Callable[[counting.Operation, Scope], Trips]]()


@_TRIPS("If")
def _if(op: counting.Operation, branch: Scope) -> Trips:
    condition = op.constant(0)
    if condition is None:
        return 1, "one of its branches runs; both are counted"
    taken = "then_branch" if condition.all() else "else_branch"
    return int(branch.path == f"{op.node.key}.{taken}"), ""


@_TRIPS("Loop")
def _loop(op: counting.Operation, body: Scope) -> Trips:
    """The maximum, unless the condition is false before; it is certain if it is always true."""
    begins, goes_on = op.constant(1), op.facts.value(body.graph.output[0].name, body)
    if begins is not None and not begins.all():
        return 0, ""
    if not op.has(0):
        raise counting.UnknownWorkError("it has no maximum")
    maximum = op.constant(0)
    if maximum is None:
        raise counting.UnknownWorkError(f"'{op.node.inputs[0]}' is computed or fed")
    count = max(0, int(maximum.reshape(-1)[0]))
    if (begins is not None or not op.has(1)) and goes_on is not None and goes_on.all():
        return count, ""
    return count, f"the body is counted {count} times, the maximum; its condition may end it before"


@_TRIPS("Scan")
def _scan(op: counting.Operation, body: Scope) -> Trips:
    scanned = op.integer("num_scan_inputs", 1)
    names = op.node.inputs
    first = op.input(len(names) - scanned).shape
    if op.opset < 9:  # the batch is the first axis, and the body runs for each of its rows
        return first[0] * first[1], ""
    axes = op.integers("scan_input_axes") or (0,)
    return first[axes[0]], ""


Group = tuple[str, ...]
"""Keys of the nodes of a kernel."""


def kernel_traffic(
    typed: TypedModel,
    groups: Iterable[Group],
    calls: Mapping[str, float] | None = None,
) -> dict[Group, counting.Bytes]:
    """Returns bytes read and written per run by each group of nodes; None is unknown.

    A single node moves the bytes of its counting rule. In a group, a tensor that a member computes
    is not read by the other members, and is written only if a node outside needs it. A tensor that
    several members read is read once. `calls` as in `tracer.analyzers.cost.cost`.
    """
    repeats, _ = executions_per_run(typed.model, typed.facts, calls or {})
    operations = {op.node.key: op for op in typed.operations}
    traffic_of: dict[Group, counting.Bytes] = {}
    for group in groups:
        already_read: set[Address] = set()
        members = frozenset(group)
        once = {
            key: _traffic_in_group(typed, operations[key], members, already_read) for key in group
        }
        known = [size * repeats[key] for key, size in once.items() if size is not None]
        traffic_of[group] = round(sum(known)) if len(known) == len(once) else None
    return traffic_of


def _traffic_in_group(
    typed: TypedModel, op: counting.Operation, group: Collection[str], already_read: set[Address]
) -> counting.Bytes:
    """Returns the bytes that one execution of a member of `group` reads and writes.

    `already_read` has the tensors that earlier members read; this node's are added.
    """
    node, flow, aliases = op.node, typed.flow, typed.aliases
    rule = counting.find_rule(node.domain, node.op_type)
    try:
        read, written = rule.traffic(op) if rule else (None, None)
    except (counting.UnknownWorkError, ValueError, IndexError):
        return None

    def leaves(tensor: Address) -> bool:  # a node outside or the model's output needs it
        names = aliases.names(tensor)
        readers = (reader for name in names for reader in flow.readers.get(name, ()))
        return not flow.results.isdisjoint(names) or any(r.key not in group for r in readers)

    roots = {tensor: aliases.root(tensor) for tensor in flow.read(node)}
    makers = {root: flow.makers[root].key for root in roots.values() if root in flow.makers}
    inside = [t for t, root in roots.items() if root in already_read or makers.get(root) in group]
    if read:  # the readers of a view's output read its bytes
        already_read.update(roots.values())
    unneeded = [tensor for tensor in flow.outputs_of(node) if not leaves(tensor)]
    not_read, not_written = (
        counting.known_sum(typed.facts.operand(name, node.scope).nbytes for _, name in tensors)
        for tensors in (inside, unneeded)
    )
    if read is None or written is None or not_read is None or not_written is None:
        return None
    # A rule may count less than whole tensors, as that of a view or of Gather does.
    return max(0, read - not_read) + max(0, written - not_written)


def unavoidable_macs(typed: TypedModel, macs: Mapping[Hashable, int]) -> dict[str, float]:
    """Returns the least MACs per run of each product by node; `macs` are those that are counted."""
    least = {}
    for op in typed.operations:
        key = op.node.key
        if op.op_type in WHOLE_PRODUCTS and macs.get(key):
            try:
                within = _share_outside_padding(op) if op.op_type in CONVOLUTIONS else 1.0
            except (counting.UnknownWorkError, ValueError):
                continue
            least[key] = macs[key] * within
    return least


def _share_outside_padding(op: counting.Operation) -> float:
    """Returns the share of the window positions of a convolution that are no padding."""
    if op.text("auto_pad", "NOTSET").startswith("SAME") or op.integer("channels_last", 0):
        return 0.0
    sizes, outputs = op.input(0).shape[2:], op.output().shape[2:]
    window = op.input(3 if op.op_type == "QLinearConv" else 1).shape[2:]
    axes, ones = len(sizes), (1,) * len(sizes)
    pads = op.integers("pads") or (0,) * axes
    strides, dilations = op.integers("strides") or ones, op.integers("dilations") or ones
    share = 1.0
    for size, count, taps, pad, stride, dilation in zip(
        sizes, outputs, window, pads[:axes], strides, dilations, strict=True
    ):
        first = np.arange(taps) * dilation - pad  # where each tap is for the first output
        low = np.maximum(-(first // stride), 0)
        high = np.minimum(-((first - size) // stride), count)
        share *= float(np.maximum(high - low, 0).sum()) / (count * taps)
    return share
