"""Makes a network fit narrow accumulators: see `tracer.narrow`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import onnx

from analyzers import energy as energy_models
from exporters import writing
from exporters.subject import Subject, open_subject
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.any_accumulator import AnyAccumulator
from tracer.accumulators.spec.policy import Entry, Policy
from tracer.accumulators.spec.register import WIDEST
from tracer.accumulators.statistics.guarantee import Guarantee, guarantee
from tracer.api._narrowed_energy import with_energies
from tracer.errors import ModelError, UsageError
from tracer.graph import data_file, loading
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.datasets.opening import open_dataset, without_split
from tracer.narrowing import layers as quantized_layers
from tracer.narrowing.evaluation import Evaluation, Sums
from tracer.narrowing.layers import Layer
from tracer.narrowing.narrow import Change, narrowed
from tracer.narrowing.samples import sampled
from tracer.quantization.calibration import CalibrationSamples
from tracer.records.narrowed import Narrowed, NarrowedNode, WidthScores, certificate_beside
from tracer.records.trace import ModelInfo
from tracer.records.whatif import Judgement
from tracer.support.files import check_writable
from tracer.support.progress import Progress, silent
from tracer.support.types import FloatArray
from tracer.whatif import width_plan
from tracer.whatif.graph_variants import quantized_first
from tracer.whatif.metric_scores import checked_metric, judgement
from tracer.whatif.width_plan import WidthPlan

_LEAST_OPSET = 13
"""The first opset in which DequantizeLinear has a scale for each channel."""


@dataclass(frozen=True, slots=True)
class _Attempt:
    """The model at one width: the changes, its sums, and the score if sums saturate instead."""

    bits: int
    policy: Policy
    proto: onnx.ModelProto = field(repr=False)
    changes: tuple[Change, ...]
    saturated: float
    after: Sums


def narrow(
    model: Subject,
    bits: str | Sequence[int],
    data: str | Path,
    output: str | Path | None,
    force: bool,
    limit: int | None,
    test: str | Path | None,
    test_limit: int | None,
    metric: str | None,
    budget: float,
    batch: int,
    folder: Path,
    progress: Progress | None,
    energy: str,
) -> Narrowed:
    """Tries each width, and writes the model of the narrowest within the budget."""
    energy_model = energy_models.find(energy)
    target = None if output is None else Path(output)
    if target is not None:
        writing.check_target(target, force)
        check_writable(certificate_beside(target), force)
    plan, report = width_plan.read(bits), progress or silent
    policies = _policies(plan)  # raises UsageError before minutes are spent
    loaded = open_subject(model)
    calibration = open_dataset(data, loaded, limit=limit, split="train", folder=folder)
    tested = open_dataset(test or without_split(data), loaded, limit=test_limit, folder=folder)
    chosen = checked_metric(loaded, tested, metric)
    wide, notes = _quantized(loaded, calibration, batch, report)
    found, others = quantized_layers.find(wide)
    _check(wide, found, others)
    columns = sampled(wide, found, CalibrationSamples(calibration, batch), report)
    evaluation = Evaluation(wide, _wide(plan), tested, chosen, batch, report)
    judge = judgement(chosen, budget)
    attempts = [
        _attempt(wide, policy, width, (found, columns), evaluation, report)
        for width, policy in policies
    ]
    best = _narrowest(attempts, evaluation.before.score, judge)
    proto, certificate = _kept(best, target)
    lost = _notes(best, others, evaluation.before.score, judge)
    result = Narrowed(
        model=ModelInfo.of(loaded),
        settings={
            "bits": str(plan), "data": calibration.name, "limit": limit, "test": tested.name,
            "budget": budget,
        },
        judgement=judge,
        score=evaluation.before.score,
        samples=evaluation.samples,
        bits=best.bits,
        curve=tuple(WidthScores(a.bits, a.after.score, a.saturated) for a in attempts),
        nodes=_nodes(wide, best, evaluation.before),
        notes=(*notes, *lost, *writing.notes(proto)),
        proto=proto,
        certificate=certificate,
    )  # fmt: skip
    return with_energies(result, wide, tested, energy_model)


def _quantized(
    model: Model, calibration: Dataset, batch: int, report: Progress
) -> tuple[Model, tuple[str, ...]]:
    """Returns the model with its weights in it, quantised first if it is a float model."""
    quantised, notes = quantized_first(model, CalibrationSamples(calibration, batch), report)
    place = None if quantised.path is None else Path(quantised.path).parent
    proto = data_file.whole(quantised.proto, place)
    return replace(loading.from_proto(proto), subject=model.name), notes


def _check(model: Model, layers: Sequence[Layer], others: Mapping[str, str]) -> None:
    if not layers:
        key, reason = next(iter(others.items()), ("", "it has no convolution and no product"))
        where = f"node '{key}': " if key else ""
        raise ModelError(
            f"{model.name}: no layer can be narrowed: {where}{reason}",
            "Narrow a float model, or one in qdq form: tracer quantize --format qdq.",
        )
    if model.opsets.get("", 0) < _LEAST_OPSET:
        raise ModelError(
            f"{model.name}: opset {model.opsets.get('', 0)} has no scales for each channel",
            f"Export the model with opset {_LEAST_OPSET} or newer.",
        )


def _policies(plan: WidthPlan) -> list[tuple[int, Policy]]:
    """Returns each width of the plan, and the accumulators of all nodes with it."""
    swept = plan.swept
    for entry in plan.entries:
        if entry is not swept and len(entry.value) > 1:
            raise UsageError(
                f"'{entry.text}' and '{swept.text}' both have several widths",
                "Give one width for each pattern but one.",
            )
    return [(width, _policy(plan, width)) for width in swept.value]


def _policy(plan: WidthPlan, swept: int) -> Policy:
    """Returns the accumulators of the plan's nodes, `swept` bits for those without one width."""
    return Policy(
        tuple(_entry(e.pattern, swept if e is plan.swept else e.value[0]) for e in plan.entries)
    )


def _wide(plan: WidthPlan) -> Policy:
    """Returns accumulators of the plan's nodes in which nothing overflows."""
    return Policy(tuple(_entry(e.pattern, WIDEST) for e in plan.entries))


def _entry(pattern: str, bits: int) -> Entry[AnyAccumulator]:
    return Entry(pattern, Accumulator(bits), f"{pattern}={bits}")


def _attempt(
    wide: Model,
    policy: Policy,
    width: int,
    material: tuple[Sequence[Layer], Mapping[str, FloatArray]],
    evaluation: Evaluation,
    report: Progress,
) -> _Attempt:
    """Narrows the layers of the policy, and runs the model before and after in its accumulators."""
    layers, columns = material
    rules = policy.assign(wide.nodes)
    asked = [(each, rules[each.key].accumulator) for each in layers if each.key in rules]
    widths = [(each, a.bits) for each, a in asked if isinstance(a, Accumulator)]
    task = f"{width} bits"

    def named(done: int, total: int, what: str) -> None:
        report(done, total, f"{task}: {what}")

    proto, changes = narrowed(wide.proto, widths, columns, named)
    after = evaluation.of(loading.from_proto(proto), policy, f"{task}: narrowed")
    saturated = evaluation.of(wide, policy, f"{task}: saturated").score
    return _Attempt(width, policy, proto, changes, saturated, after)


def _narrowest(attempts: Sequence[_Attempt], score: float, judge: Judgement) -> _Attempt:
    """Returns the narrowest within the budget; without one, the widest."""
    within = (each for each in attempts if judge.allows(each.after.score, score))
    return next(within, attempts[-1])


def _nodes(model: Model, attempt: _Attempt, sums: Sums) -> tuple[NarrowedNode, ...]:
    """Returns a row for each node that sums in the accumulators of the attempt."""
    rules = attempt.policy.assign(model.nodes)
    changes = {change.layer.key: change for change in attempt.changes}
    rows = []
    for node in model.nodes:
        before, after = (each.sums.get(node.key) for each in (sums, attempt.after))
        if before is None or after is None:
            continue
        accumulator = rules[node.key].accumulator
        assert isinstance(accumulator, Accumulator)
        change = changes.get(node.key)
        fit = None if change is None else change.fit
        rows.append(NarrowedNode(
            node.key, node.op_type, node.module, accumulator.bits,
            before.guaranteed_any_order or 0, after.guaranteed_any_order or 0,
            int(before.tally.bits_observed.max()), int(after.tally.bits_observed.max()),
            "" if change is None else change.measure,
            None if fit is None else fit.grid.bits, None if fit is None else fit.sqnr_db,
        ))  # fmt: skip
    return tuple(rows)


def _notes(
    attempt: _Attempt, others: Mapping[str, str], score: float, judge: Judgement
) -> tuple[str, ...]:
    reasons: dict[str, list[str]] = {}
    for key, reason in others.items():
        reasons.setdefault(reason, []).append(key)
    unfit = [f"not narrowed: {', '.join(keys)}: {why}" for why, keys in reasons.items()]
    within = judge.allows(attempt.after.score, score)
    lost = () if within else (
        f"{attempt.bits} bits cost more than the budget of {judge.budget:g}: tracer narrow --bits "
        "with more bits, or a larger --budget",
    )  # fmt: skip
    return (*attempt.after.notes, *unfit, *lost)


def _kept(attempt: _Attempt, target: Path | None) -> tuple[onnx.ModelProto, Guarantee | None]:
    """Returns the model with its certificate, and writes both where there is a target."""
    sums = attempt.after.sums
    if target is None:
        return attempt.proto, guarantee(loading.from_proto(attempt.proto).sha256, sums)

    def content(digest: str) -> bytes | None:
        proof = guarantee(digest, sums)
        return None if proof is None else proof.to_json()

    beside = certificate_beside(target)
    proto = writing.write_beside(attempt.proto, target, beside, content)
    return proto, guarantee(loading.sha256(target), sums)
