"""A what-if in words and tables: its answers, a row a width, a row a node, what variants are."""

from collections.abc import Iterator
from typing import Any

import pandas as pd

from tracer.analyzers.views import text
from tracer.analyzers.views.text import percent, plural, si
from tracer.records.whatif import (
    REFERENCE_BITS,
    EnergyBasis,
    Judgement,
    Variant,
    WhatIf,
    WidthChoice,
    known_sum,
)

_WIDEST = 64
_MOST_LISTED = 8


def sentences(result: WhatIf, variant: Variant) -> Iterator[str]:
    """Yields the answers A, B and C, after the pins; then what ended the search early."""
    if variant.pinned.text:
        pins = len(variant.pinned.bits)
        others = plural(len(variant.work) - pins, "node")
        yield (
            f"Pinned: {variant.pinned.text}, {plural(pins, 'node')}; A, B and C are about the "
            f"other {others}."
        )
    answer = variant.answer
    guaranteed = f">{_WIDEST}" if answer.guaranteed > _WIDEST else str(answer.guaranteed)
    covered = variant.coverage
    where = "" if covered is None or covered.is_whole else f" in {text.extent(covered)}"
    yield (
        f"A: {answer.observed} bits are safe on this data ({answer.limiting} needs them); "
        f"{guaranteed} bits are safe for any input{where}."
    )
    yield _within_budget(result, variant)
    if answer.each is not None:
        yield _each_choice_text(result, variant, answer.each)
    if answer.ended:
        swept = {row.bits for row in answer.rows}
        missing = [str(bits) for bits in result.settings["widths"] if bits not in swept]
        unknown = f"; not evaluated: {', '.join(missing)} bits" if missing else ""
        if answer.each is None and result.settings["search"]:
            unknown += "; C was not searched"
        yield (f"Ended early, {answer.ended}: A, B and C are the best found until then{unknown}.")


def effort(result: WhatIf, variant: Variant) -> str:
    """Returns the number of evaluations and samples."""
    answer = variant.answer
    screening = ""
    if answer.screening is not None:
        evaluations, samples = answer.screening.evaluations, answer.screening.samples
        screening = f", after {evaluations:,} on the {samples:,} hardest"
    return (
        f"{plural(len(answer.evaluations), 'evaluation')} on {plural(answer.samples, 'sample')} of "
        f"{result.settings['data']}{screening}"
    )


def metric(judgement: Judgement) -> str:
    """Returns the name of the metric with its unit: `top1 %`."""
    return f"{judgement.metric.rpartition(':')[2]} {judgement.unit}".strip()


def score(judgement: Judgement, value: float) -> str:
    """Returns `98.33 %`, or four digits in the unit of another metric."""
    return f"{text.score(value, judgement.unit)} {judgement.unit}".strip()


def budget(judgement: Judgement) -> str:
    """Returns `1 point` for a metric in %, else the budget in the unit of the metric."""
    if judgement.unit != "%":
        return score(judgement, judgement.budget)
    return f"{judgement.budget:g} {'point' if judgement.budget == 1 else 'points'}"


def energy(result: WhatIf, value: float) -> str:
    """Returns an energy with its unit."""
    return f"{si(value)} {result.energy.unit}".strip()


def basis_text(basis: EnergyBasis) -> str:
    """Returns what energies are computed from."""
    return (
        f"energy is per sample, by the model {basis.model} ({basis.source}); additions are counted "
        f"by the convention {basis.convention}"
    )


def _within_budget(result: WhatIf, variant: Variant) -> str:
    judgement, answer, choice = result.judgement, variant.answer, variant.answer.uniform
    lost = f"{budget(judgement)} of {judgement.metric}"
    wide = score(judgement, answer.score)
    if choice is None and answer.ended:
        return f"B: no width for all nodes that loses at most {lost} was found in time."
    if choice is None:
        pins = variant.pinned.bits
        bits_of = {work.node: pins.get(work.node, answer.observed) for work in variant.work}
        scores = (each.score for each in answer.evaluations if pins and each.bits == bits_of)
        alone = next(scores, None)
        narrow = "; with only the pinned nodes narrow it is "
        pinned = "" if alone is None else f"{narrow}{score(judgement, alone)}"
        return (
            f"B: every width for all nodes loses more than {lost} ({wide} in wide accumulators)"
            f"{pinned}."
        )
    bits = variant.swept(choice)[0]
    safe, reference = variant.swept_energy(answer.observed), variant.energy(REFERENCE_BITS)
    less = f"{_share(choice.energy, reference)} than {REFERENCE_BITS} bits"
    if bits < answer.observed:
        less += f" and {_share(choice.energy, safe)} than A"
    limit = _limit(choice, "{} prevents " + f"{bits - 1} bits", f"at {bits - 1} bits")
    return (
        f"B: {bits} bits lose at most {lost} ({score(judgement, choice.score)}, {wide} in wide "
        f"accumulators) and need {energy(result, choice.energy)} per sample, {less}{limit}."
    )


def _limit(choice: WidthChoice, limiting: str, less: str) -> str:
    """Returns which node limits a choice or, where that is not known, which overflows most."""
    if choice.limiting:
        return "; " + limiting.format(choice.limiting)
    return f"; {less}, {choice.overflowing} overflows most" if choice.overflowing else ""


def _each_choice_text(result: WhatIf, variant: Variant, choice: WidthChoice) -> str:
    uniform = variant.answer.uniform
    assert uniform is not None
    if choice.energy >= uniform.energy:
        return f"C: a width for each node saves nothing over B: {_reason(variant, choice)}."
    limit = _limit(choice, "{} limits it most", "with one bit less")
    swept = variant.swept(choice)
    widths = f"{min(swept)} to {max(swept)} bits"
    if len(swept) <= _MOST_LISTED:
        widths = " ".join(map(str, swept))
    reference = variant.energy(REFERENCE_BITS)
    return (
        f"C: a width for each node, {widths}, needs "
        f"{energy(result, choice.energy)}, {_share(choice.energy, uniform.energy)} than B and "
        f"{_share(choice.energy, reference)} than {REFERENCE_BITS} bits "
        f"({score(result.judgement, choice.score)}){limit}."
    )


def _reason(variant: Variant, choice: WidthChoice) -> str:
    """Returns why the search ends at B: no node can lose a bit and save energy."""
    if variant.answer.ended:
        return "the search ended before it found less energy"
    energies = {tuple(each) for each in variant.energies.values()}
    if not any(map(known_sum, energies)):
        return "no node has a known energy"
    if len(variant.swept(choice)) == 1:
        return "there is only one node"
    if len(energies) == 1:
        return "this energy model does not depend on the width"
    return (
        "one bit less in any single node exceeds the budget, and no search from A ends at less "
        "energy"
    )


def _share(energy: float, reference: float) -> str:
    share = saved(energy, reference)
    if share is None:
        return "no less"
    return f"{percent(share)} less" if share >= 0 else f"{percent(-share)} more"


_COUNTS = (
    "outputs", "overflow_outputs", "transient_outputs", "persistent_outputs",
    "saturation_events", "outputs_changed",
)  # fmt: skip


def axes(variant: Variant) -> dict[str, Any]:
    """Returns the properties that variants may differ in, by name."""
    accumulator = variant.answer.accumulator
    return {
        "order": str(accumulator.order),
        "overflow": accumulator.overflow,
        "bias": accumulator.bias,
        "product_bits": accumulator.product_bits,
        "convention": accumulator.convention,
        "weight_bits": variant.weight_bits,
        "activation_bits": variant.activation_bits,
        "pinned": variant.pinned.text or None,
    }


def label(result: WhatIf, variant: Variant) -> str:
    """Returns the properties in which variants differ, and the pins; a single one's order."""
    values = axes(variant)
    varied = [n for n in values if len({str(axes(other)[n]) for other in result.variants}) > 1]
    shown = varied or ["order", "overflow"]
    shown += ["pinned"] if values["pinned"] and "pinned" not in shown else []
    weights, activations = values["weight_bits"], values["activation_bits"]
    texts = {
        "pinned": f"pinned {values['pinned']}",
        "bias": f"bias {values['bias']}",
        "product_bits": f"products of {values['product_bits']} bits",
        "weight_bits": f"{weights}-bit weights" if weights is not None else "original weights",
        "activation_bits": f"{activations}-bit activations"
        if activations
        else "original activations",
    }
    return ", ".join(texts.get(name, str(values[name])) for name in shown)


def width_rows(variant: Variant) -> pd.DataFrame:
    """Returns a row for each width of the sweep.

    Columns: `bits`, `score`, the overflow counts over all nodes and samples, `energy` per sample,
    and the share of energy `saved` against 32 bits and `saved_against_safe` against answer A.
    """
    reference = variant.energy(REFERENCE_BITS)
    safe = variant.swept_energy(variant.answer.observed)
    return pd.DataFrame(
        {
            "bits": row.bits,
            "score": row.score,
            **{n: sum(getattr(o, n) for o in row.overflows.values()) for n in _COUNTS},
            "energy": row.energy,
            "saved": saved(row.energy, reference),
            "saved_against_safe": saved(row.energy, safe),
        }
        for row in variant.answer.rows
    )


def nodes(variant: Variant) -> pd.DataFrame:
    """Returns a row for each node: the bits it needs, its bits in B and C, and their energies."""
    answer = variant.answer
    sums_of = {sums.node: sums for sums in answer.sums}
    choices = {"uniform": answer.uniform, "each": answer.each}
    table = []
    for index, work in enumerate(variant.work):
        sums = sums_of.get(work.node)
        table.append(
            {
                "node": work.node,
                "op_type": work.op_type,
                "module": work.module,
                "guaranteed": sums.guaranteed if sums else None,
                "observed": int(sums.tally.bits_observed.max()) if sums else None,
                "bits_pinned": variant.pinned.bits.get(work.node),
                **{f"bits_{name}": c.widths[index] if c else None for name, c in choices.items()},
                **{
                    f"energy_{n}": None if c is None else variant.energies[c.widths[index]][index]
                    for n, c in choices.items()
                },
                "muls": work.muls,
                "adds": work.adds,
            }
        )
    return pd.DataFrame(table)


def saved(energy: float, reference: float) -> float | None:
    """Returns the share of `reference` that `energy` saves; None for a reference of 0."""
    return 1 - energy / reference if reference else None
