"""Reads the real shapes of all tensors and the calls of all nodes off an unoptimised run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tracer.graph import tensor_type
from tracer.graph.model import Address, Model, Node
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
    return is_open or bool(of(model, kernels).differences(types))


def of(model: Model, kernels: Sequence[Kernel]) -> Observation:
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
