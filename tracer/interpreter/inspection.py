"""Record every node of one inference, and compare its outputs with the tensors of a reference."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from tracer.graph.model import Node
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.recording import NodeRecord, Recorder
from tracer.interpreter.values import Value
from tracer.support.tolerance import Difference, Tolerance, compare, worst


@dataclass(frozen=True, slots=True)
class Inspection:
    """Records and differences by node key, in the order the nodes ran, and the model's outputs.

    A node without a tensor in the reference has no difference.
    """

    records: Mapping[str, NodeRecord]
    differences: Mapping[str, Difference]
    outputs: Sequence[Value]


def inspect(
    interpreter: Interpreter,
    feeds: Mapping[str, Value],
    reference: Mapping[str, Value] | None = None,
    tolerance: Tolerance | None = None,
) -> Inspection:
    """Runs one inference and records every node.

    `reference` are tensors of the main graph by name, computed elsewhere from the same feeds.
    Raises the errors of `Interpreter.run`.
    """
    comparer = _Comparer(reference or {}, tolerance or Tolerance())
    recorder = Recorder()
    # The recorder is the last to start and the first to end: its times exclude the comparisons.
    outputs = interpreter.with_observers(recorder, comparer).run(None, feeds)
    return Inspection(recorder.records, comparer.differences, outputs)


@dataclass(slots=True)
class _Comparer:
    """Compares the outputs of each node of the main graph right after the node ran."""

    reference: Mapping[str, Value]
    tolerance: Tolerance
    differences: dict[str, Difference] = field(default_factory=dict)

    def before(self, node: Node, inputs: Sequence[Value]) -> None:
        """Does nothing."""

    def after(self, node: Node, inputs: Sequence[Value], outputs: Sequence[Value]) -> None:
        """Records the worst difference among the outputs that the reference has too."""
        if node.scope.path:
            return
        differences = [
            compare(value, self.reference[name], self.tolerance)
            for name, value in zip(node.outputs, outputs, strict=False)
            if name in self.reference
        ]
        if differences:
            self.differences[node.key] = worst(differences)
