"""Compares the bits of ONNX models in onnxruntime, here and on another machine: `compare_bits`."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np

from tracer.api.compare import BitArguments, SideSettings, naming
from tracer.api.compare.sides import OnnxSide
from tracer.arithmetic import causes, fingerprint, runs
from tracer.arithmetic.kernel import NotKnown, are_equal, parts
from tracer.arithmetic.replays import KnownRules, conv
from tracer.errors import InputError, UsageError
from tracer.executors.settings import OrtSettings
from tracer.graph.model import Model
from tracer.inputs.feedset import Feeds, FeedSet
from tracer.records import bits as records
from tracer.text import plural


@dataclass(frozen=True)
class _Ran:
    """A side that ran here, with its settings and feeds."""

    label: str
    side: causes.Side
    settings: OrtSettings
    feeds: Feeds

    @property
    def outputs(self) -> dict[str, Any]:
        """The outputs of the model."""
        return {name: self.side.values[name] for name in self.side.graph.outputs}


def compare(call: BitArguments) -> records.BitComparison:
    """Compares every side with the first one, or with the other machine."""
    rules = KnownRules()
    if call.machine:
        path = Path(call.machine)
        machine = fingerprint.read(path)
        sides = [_compare_machine(side, machine, path, call, rules) for side in _onnx_sides(call)]
        reference = "this machine"
    else:
        settings = product(_onnx_sides(call), call.batches or (None,), call.threads or (None,))
        variants = [
            replace(side, threads=threads, batch=batch) for side, batch, threads in settings
        ]
        if len(variants) < 2:
            raise UsageError("one side alone cannot be compared", "Name two or more, or --machine.")
        largest = max(variants, key=lambda side: side.batch or 0)
        feeds = largest.feeds_that_run(call.settings).feeds
        first, *others = (_run(side, largest, feeds, call.settings, rules) for side in variants)
        sides = [_compare(first, other) for other in others]
        reference = first.label
    rules.store()
    return records.BitComparison(reference, tuple(sides))


def _onnx_sides(call: BitArguments) -> list[OnnxSide]:
    """Returns the sides. Raises UsageError for what onnxruntime does not run on the CPU."""
    sides = naming.named_sides(call.sides, call.settings)
    naming.refuse_unused(sides, call.settings)
    for side in sides:
        if not isinstance(side, OnnxSide) or side.executor != "ort" or side.provider:
            raise UsageError(
                f"{side.label}: bits are compared of ONNX models that onnxruntime runs on the CPU",
                "Name FILE.onnx, or FILE.onnx@ort:none … @ort:all.",
            )
        if side.release:
            raise UsageError(
                f"{side.label}: bits are compared in the onnxruntime that is installed",
                "Compare this side without --bits.",
            )
    return [side for side in sides if isinstance(side, OnnxSide)]


def _run(
    side: OnnxSide, largest: OnnxSide, feeds: Feeds, settings: SideSettings, rules: KnownRules
) -> _Ran:
    """Runs a side on the feeds of the largest batch, or on as many of its first rows."""
    if side.batch not in (None, largest.batch):
        held = {name: value for name, value in feeds.items() if value is not None}
        rows = {n: v[: side.batch] for n, v in held.items() if len(v) == largest.batch}
        feeds = {**feeds, **rows}
    threads = settings.threads if side.threads is None else side.threads
    level = side.level(settings) or "all"
    label = side.label
    label += "" if side.threads is None else f" ({plural(threads, 'thread')})"
    label += "" if side.batch is None else f" (batch {side.batch})"
    run = OrtSettings(threads=threads, optimization=level, register=settings.register)
    return _ran(label, side.model, run, feeds, rules)


def _ran(label: str, model: Model, settings: OrtSettings, feeds: Feeds, rules: KnownRules) -> _Ran:
    graph = runs.SavedGraph.of(model, settings)
    values = graph.runner(model)(feeds)
    side = causes.Side(model, graph, rules.of, values, conv.block_size())
    return _Ran(label, side, settings, feeds)


def _compare(first: _Ran, other: _Ran) -> records.SideBits:
    is_same = first.side.model.sha256 == other.side.model.sha256
    is_same &= first.settings.optimization == other.settings.optimization
    threads = first.settings.threads != other.settings.threads
    sizes = [FeedSet(each.feeds, None).shapes for each in (first, other)]
    batches = sizes[0] != sizes[1]
    context = ""
    if is_same and threads != batches:
        context = records.THREADS if threads else records.BATCHES
    found, nodes = causes.first_difference(first.side, other.side, context, batches)
    outputs = tuple(_outputs(first.outputs, other.outputs, batches))
    return records.SideBits(other.label, nodes, found, outputs)


def _outputs(
    own: Mapping[str, Any], others: Mapping[str, Any], batches: bool
) -> Iterator[records.OutputDifference]:
    """Yields how the outputs differ, by position: exports of one network may name them apart."""
    for (name, x), y in zip(own.items(), others.values(), strict=False):
        sides = parts(x), parts(y)
        pairs = zip(*sides, strict=False)
        common = [runs.overlap(*pair, batches, padded=False) for pair in pairs]
        if len(sides[0]) != len(sides[1]) or any(first is None for first, _ in common):
            size = max(1, *(sum(part.size for part in side) for side in sides))
            yield records.OutputDifference(name, 0, size, None, None)
            continue
        same = [are_equal(*pair) for pair in common]
        numbers = [pair for pair in common if pair[0].dtype.kind != "U"]
        with np.errstate(invalid="ignore"):  # infinities differ by NaN, or by nothing if equal
            errors = [
                np.where(are_equal(*pair), 0, np.abs(np.asarray(pair[0], np.float64) - pair[1]))
                for pair in numbers
            ]
        rows = classes = None
        if isinstance(x, np.ndarray) and x.ndim == 2 and x.shape[1] > 1:
            ((first, other),) = common
            rows, classes = len(first), int((first.argmax(1) != other.argmax(1)).sum())
        yield records.OutputDifference(
            name, int(sum(each.sum() for each in same)), sum(each.size for each in same),
            max((float(error.max(initial=0)) for error in errors), default=None),
            max((runs.ulps(*pair) for pair in numbers), default=None), rows, classes,
        )  # fmt: skip


def _compare_machine(
    side: OnnxSide, machine: records.Fingerprint, path: Path, call: BitArguments, rules: KnownRules
) -> records.SideBits:
    print_ = next((each for each in machine.models if each.sha256 == side.model.sha256), None)
    if print_ is None:
        names = ", ".join(each.name for each in machine.models) or "none"
        raise InputError(
            f"{path}: has no model with the content of {side.label}, only {names}",
            f"Run there: tracer fingerprint {Path(side.source).name} -o cpu.json.",
        )
    settings, model = call.settings, side.model
    drawn = fingerprint.feeds_of(print_, model)
    feeds = side.request(settings).feeds().feeds if settings.inputs else drawn
    own = OrtSettings(
        threads=settings.threads or print_.threads,
        optimization=side.optimization or print_.optimization,
    )
    here = _ran(side.label, model, own, feeds, rules)
    this = fingerprint.observe(())
    release = (
        "" if machine.onnxruntime == this.onnxruntime else f", onnxruntime {machine.onnxruntime}"
    )
    label = f"{side.label} on {machine.processor} ({machine.instructions}{release})"
    is_here = (this.processor, this.instructions) == (machine.processor, machine.instructions)
    try:
        there = fingerprint.OtherMachine.of(model, print_)
        proof = runs.replay_graph(there.graph, there.rule_of, drawn)
        exact = fingerprint.digests(proof.outputs) == print_.outputs
        if not exact:
            kernels = plural(len(print_.nodes), "kernel")
            known = f"{print_.known_rules} of {kernels} have a known rule there"
            first = next(iter(proof.without_rule.values()), "")
            unknown = f"{known}; the first other one: {first}" if first else known
            return records.SideBits(label, 0, None, (), False, unknown)
        replayed = runs.replay_graph(there.graph, there.rule_of, feeds, keep=True)
    except NotKnown as reason:
        raise InputError(
            f"{path}: {machine.processor} cannot be replayed for {side.label}: {reason}",
            "Compare another model, or both machines' outputs.",
        ) from reason
    other = causes.Side(model, there.graph, there.rule_of, replayed.values, machine.block)
    context = records.RELEASE if release and is_here else ""
    found, nodes = causes.first_difference(here.side, other, context)
    outputs = tuple(_outputs(here.outputs, replayed.outputs, False))
    return records.SideBits(label, nodes, found, outputs, exact)
