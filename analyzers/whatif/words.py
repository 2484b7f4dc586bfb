"""The answer in sentences."""

from __future__ import annotations

from collections.abc import Iterator

from analyzers.views.text import percent, plural, si
from analyzers.whatif import USUAL, saved
from tracer.records.whatif import Judgement, Variant, WhatIf, WidthChoice

_WIDEST = 64
_LISTED = 8


def sentences(result: WhatIf, one: Variant) -> Iterator[str]:
    """Which widths are enough and what they save: for all nodes, and for each its own."""
    if one.pinned.text:
        yield _pinned(one)
    yield _safe(one)
    yield _within(result, one)
    if one.answer.each is not None:
        yield _each(result, one, one.answer.each)


def effort(result: WhatIf, one: Variant) -> str:
    """What it took."""
    answer = one.answer
    before = ""
    if answer.screening is not None:
        before = f", after {answer.screening.evaluations:,} on {answer.screening.samples:,} of them"
    return (
        f"{plural(len(answer.evaluations), 'evaluation')} on {plural(answer.samples, 'sample')} of "
        f"{result.settings['data']}{before}"
    )


def score(judgement: Judgement, value: float) -> str:
    """`98.33 %`; four digits of what has no such unit."""
    if judgement.unit == "%":
        return f"{value:.2f} %"
    return f"{value:.4g} {judgement.unit}".strip()


def budget(judgement: Judgement) -> str:
    """`1 point`, of a share; in its unit of another metric."""
    if judgement.unit != "%":
        return score(judgement, judgement.budget)
    return f"{judgement.budget:g} {'point' if judgement.budget == 1 else 'points'}"


def energy(result: WhatIf, value: float) -> str:
    """With its unit."""
    return f"{si(value)} {result.energy.unit}".strip()


def _pinned(one: Variant) -> str:
    count = len(one.work) - len(one.pinned.bits)
    return (
        f"Pinned: {one.pinned.text}, {plural(len(one.pinned.bits), 'node')}; A, B and C are about "
        f"the other {plural(count, 'node')}."
    )


def _safe(one: Variant) -> str:
    answer = one.answer
    guaranteed = f">{_WIDEST}" if answer.guaranteed > _WIDEST else str(answer.guaranteed)
    return (
        f"A: {answer.observed} bits are safe on this data, where {answer.limiting} needs them; "
        f"{guaranteed} bits for any input."
    )


def _within(result: WhatIf, one: Variant) -> str:
    judgement, answer, found = result.judgement, one.answer, one.answer.uniform
    lost = f"{budget(judgement)} of {judgement.metric}"
    wide = score(judgement, answer.score)
    if found is None:
        return (
            f"B: no width for all nodes loses at most {lost} ({wide} in wide accumulators)"
            f"{_at_best(result, one)}."
        )
    bits = one.swept(found)[0]
    safe, usual = one.swept_energy(answer.observed), one.energy(USUAL)
    less = f"{_share(found.energy, usual)} than {USUAL} bits"
    if bits < answer.observed:
        less += f" and {_share(found.energy, safe)} than A"
    limit = f"; {found.limiting} forbids {bits - 1}" if found.limiting else ""
    return (
        f"B: {bits} bits lose at most {lost} ({score(judgement, found.score)}, {wide} wide) and "
        f"take {energy(result, found.energy)} a sample, {less}{limit}."
    )


def _at_best(result: WhatIf, one: Variant) -> str:
    """What the pinned nodes leave where the others lose nothing."""
    if not one.pinned.bits:
        return ""
    bits = {work.node: one.pinned.bits.get(work.node, one.answer.observed) for work in one.work}
    made = next((each for each in one.answer.evaluations if each.bits == bits), None)
    if made is None:
        return ""
    return f"; the pinned nodes alone leave {score(result.judgement, made.score)}"


def _each(result: WhatIf, one: Variant, found: WidthChoice) -> str:
    uniform = one.answer.uniform
    assert uniform is not None
    if found.energy >= uniform.energy:
        return f"C: a width for each node saves nothing more than B: {_why(one, found)}."
    limit = f"; {found.limiting} limits it most" if found.limiting else ""
    return (
        f"C: a width for each node, {_widths(one, found)}, takes "
        f"{energy(result, found.energy)}, {_share(found.energy, uniform.energy)} than B and "
        f"{_share(found.energy, one.energy(USUAL))} than {USUAL} bits "
        f"({score(result.judgement, found.score)}){limit}."
    )


def _why(one: Variant, found: WidthChoice) -> str:
    """Why no width of B can be less: the search ends where no node can lose a bit and save."""
    if not any(sum(each) for each in one.energies.values()):
        return "no energy is known of any node"
    if len(one.swept(found)) == 1:
        return "there is one node only"
    if len({tuple(each) for each in one.energies.values()}) == 1:
        return "this energy model does not depend on the width"
    return (
        "every single node with one bit less loses more than the budget, and no way down from A "
        "ends cheaper"
    )


def _widths(one: Variant, found: WidthChoice) -> str:
    """`16 to 21 bits`, or each of a few."""
    widths = one.swept(found)
    if len(widths) > _LISTED:
        return f"{min(widths)} to {max(widths)} bits"
    return " ".join(str(bits) for bits in widths)


def _share(energy: float, against: float) -> str:
    share = saved(energy, against)
    if share is None:
        return "no less"
    return f"{percent(share)} less" if share >= 0 else f"{percent(-share)} more"
