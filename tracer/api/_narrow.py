"""Makes a network fit narrow accumulators: see `tracer.narrow`."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx

from tracer.accumulators import exactness
from tracer.accumulators.nodes import nodes_that_sum
from tracer.accumulators.spec.accumulator import Accumulator, AnyAccumulator
from tracer.accumulators.spec.policy import Entry, Policy
from tracer.accumulators.statistics.certificates import Guarantee, guarantee
from tracer.analyzers import energy as energy_models
from tracer.api._calls import file_of
from tracer.api.narrow import NarrowArguments
from tracer.containment import signals
from tracer.containment.activity import Progress
from tracer.errors import ModelError, UsageError
from tracer.exporters import writing
from tracer.exporters.subject import open_subject
from tracer.graph import loading, stored_weights
from tracer.graph.model import Model
from tracer.graph.operators import MULTIPLYING, computes_in_integers
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.datasets.opening import open_dataset, without_split
from tracer.interpreter.interpreter import Interpreter
from tracer.narrowing import attempts, requirement, rounding
from tracer.narrowing.narrow import BITS
from tracer.quantization import bit_reduction
from tracer.quantization.calibration import CalibrationSamples
from tracer.quantization.layers import accuracy
from tracer.records.model_info import ModelInfo
from tracer.records.transformed import (
    Accuracy,
    Narrowed,
    NarrowedNode,
    WidthScores,
    certificate_beside,
)
from tracer.records.whatif import EnergyBasis, Judgement, known_sum
from tracer.support.files import check_writable
from tracer.whatif.criteria import EnergyCost, checked_metric, energy_cost, judgement
from tracer.whatif.variants import quantized_first

_CONVENTION = "plain"


def with_energies(
    result: Narrowed,
    wide: Model,
    best: attempts.Attempt,
    dataset: Dataset,
    energy: energy_models.EnergyModel,
) -> Narrowed:
    """Returns `result` with the energy of each node for one sample, by the model `energy`.

    `wide` is the quantised model. Before, an accumulator has as many bits as the sums of any input
    need, and no fewer than afterwards; both factors have the types of the graph. Afterwards each
    node that sums in its place in `best` has its own width, and activations have the bits that they
    are rounded to. Raises InputError for a width that the energy model lacks.
    """

    def priced(model: Model, bits: Mapping[str, int]) -> EnergyCost:
        entries: tuple[Entry[AnyAccumulator], ...] = tuple(
            Entry(name, Accumulator(width), name, exact=True) for name, width in bits.items()
        )
        return energy_cost(model, dataset, Policy(entries).assign(model.nodes), energy, _CONVENTION)

    safe = {row.node: max(row.guaranteed_before, row.bits) for row in result.nodes}
    before = priced(wide, safe)
    # A centred layer of M rows of K weights has one row more, of ones: sum(x w) is
    # sum(x (w - mean)) + mean sum(x), so that K M products and sums become K (M + 1).
    rows = {name: row for row in result.nodes for name in best.sums_of(row.node)}
    own = {name: row.bits for name, row in rows.items()}
    after = priced(loading.from_proto(best.proto), own)
    given = zip(after.work.nodes, after.work.operand_bits.tolist(), strict=True)
    operand_bits = np.array([rows[name].activation_bits or bits for name, bits in given], float)
    after = replace(after, work=replace(after.work, operand_bits=operand_bits))
    wider = dict(
        zip(before.nodes, before.per_node([safe[key] for key in before.nodes]), strict=True)
    )
    narrower = dict(
        zip(after.nodes, after.per_node([own[key] for key in after.nodes]), strict=True)
    )

    def row_energy(row: NarrowedNode) -> float | None:
        parts = [narrower[name] for name in best.sums_of(row.node)]
        # a mean that became a product of ones is compared with nothing
        is_known = wider[row.node] is not None and None not in parts
        return known_sum(parts) if is_known else None

    return replace(
        result,
        nodes=tuple(
            replace(row, energy_before=wider[row.node], energy=row_energy(row))
            for row in result.nodes
        ),
        energy=EnergyBasis(energy.name, energy.unit, energy.source, _CONVENTION),
        notes=(*result.notes, *before.notes),
    )


_LEAST_OPSET = 13
"""The first opset in which DequantizeLinear has a scale for each channel."""


@rounding.interpreting()
def narrow(call: NarrowArguments) -> Narrowed:
    """Tries each width, and writes the model of the narrowest within the budget.

    The result has the same bits on every processor.
    """
    energy_model = energy_models.find(call.energy)
    target = None if call.output is None else Path(call.output)
    if target is not None:
        writing.check_target(target, call.force)
        check_writable(certificate_beside(target), call.force)
    # before minutes are spent: raises UsageError
    wide_sums, tried = requirement.parse_widths(_widths(call), call.tile, call.guarantee)
    folder = Path(call.data_dir)
    report, batch = call.report, call.batch
    loaded = open_subject(call.model)
    if not any(node.op_type in MULTIPLYING for node in loaded.nodes):
        raise _without_layers(loaded)
    data = file_of(call.data)
    split = "test" if Path(data).is_dir() else "train"
    calibration = open_dataset(data, loaded, limit=call.limit, split=split, folder=folder)
    held_out = without_split(data) if call.test is None else file_of(call.test)
    tested = open_dataset(held_out, loaded, limit=call.test_limit, folder=folder)
    metric = checked_metric(loaded, tested, call.metric)
    wide, notes = _quantized(loaded, calibration, call, report)
    subject = attempts.Subject.of(wide)
    _check(subject)
    judge = judgement(metric, call.budget)
    if notes:  # it was quantised here
        floats = accuracy(Interpreter(loaded), Interpreter(wide), tested, metric, batch, report)[0]
        notes = (*notes, *_quantising_notes(floats, judge))
    evaluation = attempts.Evaluation(wide, wide_sums, tested, metric, batch, report)
    before, notes = evaluation.before, (*notes, *evaluation.notes)
    samples = CalibrationSamples(calibration, batch)
    trying = attempts.Attempts(subject, samples, evaluation, judge, call.guarantee, report)
    made = [trying.exact_at(width) if call.exact else trying.at(width) for width in tried]
    best = trying.narrowest(made)
    result = Narrowed(
        model=ModelInfo.of(loaded),
        settings={
            "bits": str(wide_sums), "guarantee": call.guarantee, "tile": call.tile,
            "machine": tried[0].machine or None, "exact": call.exact,
            "weight_bits": call.weight_bits,
            "data": calibration.name, "limit": call.limit, "test": tested.name,
            "budget": call.budget,
        },
        judgement=judge,
        score=before.score,
        samples=evaluation.samples,
        bits=best.width.bits,
        curve=tuple(WidthScores(a.width.bits, a.after.score, a.unchanged.score) for a in made),
        nodes=attempts.node_rows(subject, best, before),
        notes=(*notes, *attempts.result_notes(subject, best, before.score, judge)),
        proto=best.proto,
    )  # fmt: skip
    if not tried[0].machine:  # energies are of widths
        result = with_energies(result, wide, best, tested, energy_model)
    # last: what fails before leaves no file
    proto, certificate = _write_result(best, target, call.exact, call.force)
    noted = dict.fromkeys((*calibration.notes, *tested.notes, *result.notes, *writing.notes(proto)))
    return replace(result, proto=proto, certificate=certificate, notes=tuple(noted))


def _widths(call: NarrowArguments) -> str | Sequence[int]:
    """Returns the widths that are asked for. Raises UsageError for options that exclude others."""
    if call.exact == (call.bits is not None):
        raise UsageError("one of --bits and --exact says what sums must fit", "Give one of them.")
    if call.exact and (call.tile is not None or call.guarantee != "any-input"):
        raise UsageError("--exact is for any input and order", "Omit --tile and --guarantee.")
    asked = BITS if call.bits is None else call.bits
    return [asked] if isinstance(asked, int) else asked


def _quantized(
    model: Model, calibration: Dataset, call: NarrowArguments, report: Progress
) -> tuple[Model, tuple[str, ...]]:
    """Returns the model with its weights in it, of so many bits as the options ask for.

    A float model is quantised first.
    """
    samples = CalibrationSamples(calibration, call.batch)
    quantised, notes = quantized_first(model, samples, report)
    proto = stored_weights.with_inline_weights(quantised.proto, quantised.folder)
    if call.weight_bits is not None:
        proto = bit_reduction.narrow(proto, call.weight_bits)
    return replace(loading.from_proto(proto), subject=model.name), notes


def _quantising_notes(scores: Accuracy | None, judge: Judgement) -> Iterator[str]:
    """Yields a note where the float model loses more than the budget before sums are narrowed."""
    if scores is None or judge.allows(scores.after, scores.before):
        return
    before, after = (
        f"{value:.4g} {scores.unit}".strip() for value in (scores.before, scores.after)
    )
    yield (
        f"quantising alone cost more than the budget: {scores.metric} is {before} in floats, and "
        f"{after} quantised. To keep it, quantise fewer nodes first, such as tracer quantize "
        "--nodes MatMul --nodes Conv --nodes Gemm, and narrow that model"
    )


def _check(subject: attempts.Subject) -> None:
    model, opset = subject.model, subject.model.opsets.get("", 0)
    if not subject.has_layers:
        whys = [f"node '{key}': {reason}" for key, reason in subject.others.items()]
        raise _without_layers(model, *whys[:1])
    if opset < _LEAST_OPSET:
        raise ModelError(
            f"{model.name}: opset {opset} has no scales for each channel",
            f"Export the model with opset {_LEAST_OPSET} or newer.",
        )


def _without_layers(model: Model, why: str = "") -> ModelError:
    products = [node for node in model.nodes if node.op_type in MULTIPLYING]
    whole = next((node for node in products if computes_in_integers(node.op_type)), None)
    if not why and whole is not None:
        why = f"its products are integer operators, as node '{whole.key}' ({whole.op_type})"
    why = why or "it has no convolution and no product"
    return ModelError(
        f"{model.name}: no layer can be narrowed: {why}",
        "Narrow the float model, or its qdq form: tracer quantize --format qdq.",
    )


def _write_result(
    attempt: attempts.Attempt, target: Path | None, is_exact: bool, force: bool
) -> tuple[onnx.ModelProto, Guarantee | None]:
    """Returns the model with its certificate, and writes both where there is a target."""
    sums, model = attempt.after.sums, loading.from_proto(attempt.proto)
    every, machine = nodes_that_sum(model), attempt.width.machine
    proved = exactness.prove(attempt.proto) if is_exact else None
    if target is None:
        return attempt.proto, guarantee(model.sha256, sums, every, machine, proved)

    def content(digest: str) -> bytes | None:
        proof = guarantee(digest, sums, every, machine, proved)
        return None if proof is None else proof.to_json()

    beside = certificate_beside(target)
    signals.lift_limit()
    proto = writing.write_beside(attempt.proto, target, beside, content, force)
    return proto, guarantee(loading.sha256(target), sums, every, machine, proved)
