"""What a stored what-if must satisfy to be shown: sizes that fit, widths that exist."""

import math
from collections.abc import Mapping

from tracer.accumulators.spec.register import NARROWEST, WIDEST
from tracer.records.whatif import REFERENCE_BITS, Evaluation, Variant, WhatIf, WidthChoice


def check_result(result: WhatIf) -> None:
    """Raises ValueError for a result that lacks variants or the name of its data."""
    if not result.variants:
        raise ValueError("the result has no variant")
    if not isinstance(result.settings.get("data"), str):
        raise ValueError("the settings do not name the data")


def check_evaluation(evaluation: Evaluation, bits: Mapping[str, int]) -> None:
    """Raises ValueError for an evaluation at other widths than `bits`."""
    if evaluation.bits != bits:
        raise ValueError("it is about other widths")


def check_variant(variant: Variant) -> None:
    """Raises ValueError for widths, energies or scores that do not belong together."""
    answer = variant.answer
    bits = [row.bits for row in answer.rows]
    _require(bool(bits), "it has no row")
    _require(len(set(bits)) == len(bits), "it has two rows of one width")
    _require(all(NARROWEST <= each <= WIDEST for each in bits), "a row has an impossible width")
    counts = [row.evaluation.overflows for row in answer.rows]
    _require(None not in counts, "a row counts no overflows")
    nodes = [work.node for work in variant.work]
    _require(len(set(nodes)) == len(nodes) > 0, "its nodes are not distinct")
    _require(
        all(len(each) == len(nodes) for each in variant.energies.values()),
        "its energies are those of other nodes",
    )
    _require(variant.pinned.bits.keys() < set(nodes), "its pins are not some of its nodes")
    widths = {*bits, REFERENCE_BITS, answer.observed, *variant.pinned.bits.values()}
    for choice in (answer.uniform, answer.each):
        widths |= _widths(choice, len(nodes))
    for evaluation in answer.evaluations:
        _require(evaluation.bits.keys() == set(nodes), "an evaluation is about other nodes")
        widths |= set(evaluation.bits.values())
    _require(widths <= variant.energies.keys(), "a width has no energies")
    _require(answer.each is None or answer.uniform is not None, "it has an answer C without B")
    _require(all(map(math.isfinite, _scores(variant))), "a score is not finite")


def _widths(choice: WidthChoice | None, nodes: int) -> set[int]:
    if choice is None:
        return set()
    _require(len(choice.widths) == nodes, "an answer has other nodes")
    return set(choice.widths)


def _scores(variant: Variant) -> list[float]:
    answer = variant.answer
    return [answer.score, *(row.score for row in answer.rows)]


def _require(holds: bool, what: str) -> None:
    if not holds:
        raise ValueError(what)
