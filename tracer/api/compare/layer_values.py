"""Compares the layers of two models that ran: which compute something else, by what evidence.

A layer that differs is run on the values of the first model, which tells its own error. Where all
that follows from it agrees, the difference is evidence against the layer as much as against the
pair of tensors that are compared. `LayerComparison` tells which.
"""

from collections.abc import Mapping, Sequence, Set
from dataclasses import replace
from typing import Any

from tracer.analyzers.compare.numbers import Numbers, TensorDifferences, in_type_of
from tracer.analyzers.compare.tensor_pairs import (
    TensorPair,
    Values,
    leading_to_others,
    tensor_pairs,
    without_effect,
)
from tracer.errors import TracerError
from tracer.graph import operators
from tracer.graph.model import Model
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.observers import Isolation
from tracer.support.tolerance import Difference, Tolerance
from tracer.text import agree, plural

_TRIALS = 8
"""Pairs of layers that differ without which the model is run once more. A run takes about as long
as an inference of the interpreter."""

Own = Mapping[str, Difference]
"""What each layer differs by on the values of the first model, by key."""


class LayerComparison:
    """Compares the layers of a second model, which ran on `feeds`, with those of a first.

    `products` are shares of the scale that a device knows products to, by operator.
    """

    def __init__(
        self, first: Values, second: Values, model: Model, feeds: Mapping[str, Any],
        products: Mapping[str, float], tolerance: Tolerance,
    ) -> None:  # fmt: skip
        self._first, self._second, self._model, self._feeds = first, second, model, feeds
        self._products, self._tolerance = products, tolerance
        self._names = {node.key: node.outputs[0] for node in model.nodes if node.outputs}
        self._by_tensor = {self._names[key]: value for key, value in second.by_node.items()}
        exact = operators.precisions(model, self._by_tensor, products=products)
        by_node = {key: exact[name] for key, name in self._names.items() if name in exact}
        self._differences = TensorDifferences(first, second, tolerance, by_node)

    def numbers(self, is_isolated: bool, has_verdict: bool) -> Numbers:
        """Returns the differences of layers and outputs.

        Layers run on the values of the first model if `is_isolated`. Without a verdict no pair is
        doubted.
        """
        differences = self._differences
        pairs = tensor_pairs(self._first, self._second, differences.agree)
        wrong = {row["output_b"] for row in differences.outputs if row["fault"]}
        doubtable = set[TensorPair]()
        if has_verdict:
            doubtable.update(without_effect(pairs, self._model, differences.agree, wrong))
        likely = [p for p in pairs if p.is_certain or p not in doubtable or self._agree(p)]
        kept, own, obstacle = likely, None, ""
        if is_isolated:
            try:
                kept, own = self._isolated(pairs, likely, doubtable)
            except TracerError as error:
                obstacle = f"layers are not run on the values of {self._first.label}: {error.what}"
        left = len(pairs) - len(kept)
        uncertain = (
            f"{plural(left, 'layer')} {agree(left, 'is', 'are')} left out: "
            f"{agree(left, 'it differs', 'they differ')} and what follows does not, so the tensors "
            "of both sides may not be the same"
        )
        result = differences.numbers(kept, own)
        notes = [note for note in (left and uncertain, obstacle) if note]
        return replace(result, notes=(*result.notes, *notes))

    def _isolated(
        self, pairs: list[TensorPair], likely: list[TensorPair], doubtable: Set[TensorPair]
    ) -> tuple[list[TensorPair], Own]:
        """Returns the pairs that are compared, and the own differences of their layers.

        The `likely` ones are tried where the model does not run on the values of all. Pairs of
        tensors that have little in common are wrong. So is one without which the layers behind it
        no longer differ: they undo what it does, such as a scale that is applied earlier, or a
        normalisation that is in the weights of a convolution.
        """
        try:
            own = self._own_differences(pairs)
        except TracerError:
            if len(likely) == len(pairs):
                raise
            pairs, own = likely, self._own_differences(likely)
        differing = _differing(pairs, own, doubtable)
        while wrong := {p for p in differing if not p.is_certain and not self._is_close(p)}:
            pairs = [pair for pair in pairs if pair not in wrong]
            own = self._own_differences(pairs)
            differing = _differing(pairs, own, doubtable)
        tried = set[TensorPair]()
        while len(tried) < _TRIALS:
            leading = leading_to_others(differing, self._model)
            pair = next((each for each in leading if each not in tried), None)
            if pair is None:
                break
            tried.add(pair)
            others = [each for each in pairs if each != pair]
            without = self._own_differences(others)
            remaining = _differing(others, without, doubtable)
            if set(remaining) < set(differing) - {pair}:
                pairs, own, differing = others, without, remaining
        unproven = {
            p for p in differing if not (p.is_certain or (p.is_alike and self._is_close(p)))
        }
        return [pair for pair in pairs if pair not in unproven], own

    def _own_differences(self, pairs: Sequence[TensorPair]) -> Own:
        first, second = self._first.by_node, self._second.by_node
        expected = {
            self._names[pair.second]: in_type_of(first[pair.first], second[pair.second])
            for pair in pairs
        }
        isolation = Isolation(
            self._model, expected, self._tolerance, self._products, self._by_tensor
        )
        Interpreter(self._model, observers=[isolation], late_kernels=True).run(None, self._feeds)
        return isolation.differences

    def _agree(self, pair: TensorPair) -> bool:
        return self._differences.agree(pair.first, pair.second)

    def _is_close(self, pair: TensorPair) -> bool:
        return self._differences.are_close(pair.first, pair.second)


def _differing(
    pairs: Sequence[TensorPair], own: Own, doubtable: Set[TensorPair]
) -> list[TensorPair]:
    faulty = {key for key, difference in own.items() if difference.fault}
    return [pair for pair in pairs if pair.second in faulty and pair in doubtable]
