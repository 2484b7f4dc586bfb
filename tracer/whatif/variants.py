"""Runs every variant of a what-if: a graph in an accumulator, with some widths pinned.

`read_widths` reads the widths to try for each node: a policy in which a width may be a range.
`graph_variants` makes the graphs: the quantised model, and copies with fewer bits. `identity` and
`variant_key` name everything except the widths that changes the result of a stored evaluation.
"""

import hashlib
import itertools
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import msgspec
import onnx

from tracer.accumulators.nodes import rules_of
from tracer.accumulators.spec import NARROWEST, kinds
from tracer.accumulators.spec import policy as policies
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.analyzers.energy import EnergyModel
from tracer.analyzers.views.redaction import bare_text
from tracer.containment import signals
from tracer.containment.activity import Progress
from tracer.errors import InputError, LimitError, UsageError
from tracer.graph import loading
from tracer.graph.model import Model, Node
from tracer.graph.operators import adds_integers
from tracer.graph.stored_weights import WeightFiles
from tracer.inputs.datasets.dataset import Dataset, choose_samples
from tracer.inputs.datasets.opening import open_dataset
from tracer.limits import Limits
from tracer.metrics import Metric
from tracer.quantization.bit_reduction import narrow
from tracer.quantization.calibration import CalibrationSamples
from tracer.quantization.options import QuantizationOptions
from tracer.quantization.quantizer import floats_notes, quantized_graphs
from tracer.records import environment
from tracer.records.whatif import REFERENCE_BITS, Pins, Variant
from tracer.scaling.pool import Pool
from tracer.storage.whatif_file import KeptShards, ShardFile, WhatIfFile
from tracer.support.temporary import TemporaryFolder
from tracer.text import plural, suggest
from tracer.whatif import criteria, runtime_orders
from tracer.whatif.evaluation import EvaluationCache, Evaluator
from tracer.whatif.options import WhatIfOptions
from tracer.whatif.reuse import StoredBatches
from tracer.whatif.shard_runs import MEMORY, Arithmetic, EvaluationJob
from tracer.whatif.sweep import SWEEPING, Screen, SweepPlan, sweep_and_search

_SCREEN_SHARE, _SMALLEST_SCREEN = 5, 32
"""A screen has 1/5 of the samples, at least 32; there is none where that is more than half."""
_SCREEN_BATCHES = 2
"""Batches of a screen, at least: each thread works on one, for which it waits less than in one."""
_SCREEN_TIME = 0.6
"""Share of the time left that a screen may take: what it finds is then tried on all samples."""
_MEMORY = 1 << 25
"""Bytes of checkpoints of all samples: a pass uses each once, and thousands do not fit anyway. The
searches on the hardest samples return to few, of which they keep `shard_runs.MEMORY`."""
_PLAIN, _CHANNELWISE = "plain", "channelwise"
_DIGITS = 16
"""Hexadecimal digits shown of a SHA-256: enough to tell files apart."""
_SAMPLES = 512
_BATCH = 32


@dataclass(frozen=True, slots=True)
class GraphVariant:
    """A quantised model, and the bits of its weights and activations (None: as in the model)."""

    model: Model = field(repr=False)
    weight_bits: int | None = None
    activation_bits: int | None = None


@dataclass(frozen=True, slots=True)
class Task:
    """The inputs of a what-if that do not differ between variants."""

    batches: StoredBatches
    metric: Metric
    energy: EnergyModel
    options: WhatIfOptions
    plan: "WidthPlan"
    pool: Pool
    shards: ShardFile | None
    limits: Limits | None
    deadline: criteria.Deadline

    @property
    def dataset(self) -> Dataset:
        """The data."""
        return self.batches.dataset

    @property
    def widths(self) -> tuple[int, ...]:
        """The widths of the sweep."""
        return self.plan.swept.value

    def allowed(self, score: float, wide: float) -> bool:
        """Whether `score` is within the budget of `wide`, the score in wide accumulators."""
        judgement = criteria.judgement(self.metric, self.options.accuracy_budget)
        return judgement.allows(score, wide)

    def better(self, score: float) -> float:
        """A number that grows as the score gets better."""
        return score if self.metric.higher_is_better else -score

    def addition_convention(self, accumulator: Accumulator) -> str:
        """How additions are counted: by the option, or by the order of the accumulator."""
        order = str(accumulator.order)
        default = _CHANNELWISE if order == _CHANNELWISE else _PLAIN
        return self.options.addition_convention or default


def run_variants(
    task: Task,
    graphs: Sequence[GraphVariant],
    accumulators: Sequence[Accumulator],
    file: WhatIfFile | None,
    progress: Progress,
) -> tuple[tuple[Variant, ...], list[str], str]:
    """Returns a variant for each graph, accumulator and set of pins, notes, and the convention.

    The convention says how additions were counted.

    At the deadline the variants that were begun end with what was found, and the others are left
    out. Raises the errors of `VariantRunner`, LimitError where nothing was found in time.
    """
    pins = [list(task.plan.pins(graph.model.nodes)) for graph in graphs]
    passes = sum(1 + len(each) * len(task.widths) for each in pins) * len(accumulators)
    steps = itertools.count(1)

    def report(done: int, total: int, what: str) -> None:
        """Reports the sweeps of all variants as steps of one task."""
        if what == SWEEPING:
            done, total = next(steps), passes
        progress(done, total, what)

    variants: list[Variant] = []
    notes: list[str] = []
    made = itertools.product(zip(graphs, pins, strict=True), accumulators)
    for (graph, graph_pins), accumulator in made:
        try:
            with task.deadline.turning_signals():
                runner = VariantRunner(task, graph, accumulator, file, report)
            report(1, 0, SWEEPING)  # the pass in wide accumulators
            signals.keep(True)  # it is a result, too
            notes += runner.notes
            for each in graph_pins:
                variants.append(runner.variant(each))
                task.deadline.check()
        except criteria.OutOfTimeError as reason:
            if variants:
                break
            if signals.ending():
                signals.raise_again()
            raise LimitError(
                "the time limit was reached before the first width was evaluated",
                "Raise --max-seconds, or give fewer samples with --limit.",
            ) from reason
    planned = len(accumulators) * sum(map(len, pins))
    if len(variants) < planned:
        notes.append(
            f"{task.deadline.end_reason}: {len(variants)} of {planned} variants were tried"
        )
    conventions = dict.fromkeys(task.addition_convention(each) for each in accumulators)
    return tuple(variants), notes, ", ".join(conventions)


class VariantRunner:
    """Runs `graph` in accumulators like `accumulator`. Raises the errors of Evaluator."""

    def __init__(
        self,
        task: Task,
        graph: GraphVariant,
        accumulator: Accumulator,
        file: WhatIfFile | None,
        progress: Progress,
    ) -> None:
        self._task = task
        self._graph = graph
        self._accumulator = accumulator
        self._file = file
        self._progress = progress
        policy = policies.as_policy(task.plan.policy(accumulator), task.options.fixed)
        self._policy, self._orders = runtime_orders.find_orders(
            policy, graph.model, lambda: next(task.dataset.batches(task.batches.size)).inputs
        )
        self._evaluator = self._evaluating(task.batches, task.deadline)
        self._screen_evaluator: Evaluator | None = None
        self._screen_deadline = task.deadline
        rules = rules_of(self._policy, graph.model)
        self._energy = criteria.energy_cost(
            graph.model, task.dataset, {node: rules[node] for node in self._evaluator.nodes},
            task.energy, task.addition_convention(accumulator),
            self._evaluator.baseline.accumulations,
        )  # fmt: skip

    @property
    def notes(self) -> tuple[str, ...]:
        """Notes on what the metric does not show, nodes that are not narrowed or have no energy."""
        has_budget = self._task.options.accuracy_budget is not None
        hidden = criteria.metric_notes(self._task.metric, self._evaluator.wide_batches, has_budget)
        return (*self._orders, *hidden, *self._evaluator.notes, *self._energy.notes)

    def variant(self, pins: Pins) -> Variant:
        """Sweeps and searches with some nodes pinned. Raises UsageError where all are pinned."""
        task, evaluator = self._task, self._evaluator
        pins = pins.among(evaluator.nodes)
        if len(pins.bits) == len(evaluator.nodes):
            raise UsageError(
                f"'{task.plan.swept.text}' matches no further node: {pins.text} matches all",
                f"The nodes are {', '.join(evaluator.nodes)}.",
            )
        floor = NARROWEST
        try:
            self._energy.by_width([NARROWEST])
        except InputError:  # the energy model has no figure for it: the search ends at the sweep
            floor = task.widths[0]
        # raises the error for a width without energy before any evaluation
        widest = max(int(evaluator.baseline.needed.max()), floor)
        self._energy.by_width((*task.widths, *pins.bits.values(), REFERENCE_BITS, widest))
        plan = SweepPlan(
            task.widths, self._energy, task.allowed, task.better, task.options.search, floor,
            task.options.explain,
        )  # fmt: skip
        answer = sweep_and_search(
            evaluator.baseline, self._accumulator, plan, self._cache(evaluator, pins),
            task.deadline, self._screen(pins),
        )  # fmt: skip
        evaluated = {bits for each in answer.evaluations for bits in each.bits.values()}
        return Variant(
            weight_bits=self._graph.weight_bits,
            activation_bits=self._graph.activation_bits,
            pinned=pins,
            answer=answer,
            work=criteria.node_work(self._graph.model, self._energy),
            energies=self._energy.by_width(
                {*task.widths, *evaluated, REFERENCE_BITS, answer.observed}
            ),
            coverage=self._energy.coverage,
        )

    def _key(self, hardest: int | None) -> str:
        return variant_key(self._graph, self._accumulator, hardest, self._orders)

    def _evaluating(
        self, batches: StoredBatches, deadline: criteria.Deadline, hardest: int | None = None
    ) -> Evaluator:
        task = self._task
        memory = _MEMORY if hardest is None else MEMORY
        arithmetic = Arithmetic(self._graph.model, self._policy, task.limits, memory)
        job = EvaluationJob(arithmetic, batches, task.metric, self._progress, deadline)
        variant = f"{self._key(hardest)} {task.plan}"
        return Evaluator(
            job,
            task.pool,
            batches.count,
            deadline=deadline,
            progress=self._progress,
            kept=KeptShards(task.shards, variant),
        )

    def _cache(
        self, evaluator: Evaluator, pins: Pins, hardest: int | None = None
    ) -> EvaluationCache:
        return EvaluationCache(
            evaluator.nodes,
            evaluator,
            pinned=pins.bits,
            file=self._file,
            variant=self._key(hardest),
            progress=self._progress,
        )

    def _screen(self, pins: Pins) -> Callable[[], Screen] | None:
        """A function that evaluates on the hardest samples; None where samples are few."""
        dataset, batch = self._task.dataset, self._task.batches.size
        samples = self._evaluator.baseline.samples
        size = max(samples // _SCREEN_SHARE, _SMALLEST_SCREEN)
        if 2 * size > samples or not dataset.layout.rows:
            return None
        batch = min(batch, -(-size // _SCREEN_BATCHES))

        def screen() -> Screen:
            if self._screen_evaluator is None:
                hardest = criteria.hardest(self._task.metric, self._evaluator.wide_batches, size)
                screened = choose_samples(dataset, hardest)
                self._screen_deadline = self._task.deadline.part(_SCREEN_TIME)
                batches = StoredBatches(screened, batch)
                self._screen_evaluator = self._evaluating(batches, self._screen_deadline, size)
            evaluator = self._screen_evaluator
            cache = self._cache(evaluator, pins, size)
            return Screen(cache, evaluator.baseline, self._screen_deadline)

        return screen


def graph_variants(
    model: Model,
    data: str | Path,
    options: WhatIfOptions,
    folder: Path,
    progress: Progress,
) -> tuple[tuple[GraphVariant, ...], tuple[str, ...]]:
    """Returns a graph for each combination of bits, and notes on how `model` was changed.

    A float model is quantised first, unless fixed-point formats are given. Raises the errors of
    quantisation, and UsageError or ModelError where bits cannot be reduced.
    """
    quantised, notes = model, tuple[str, ...]()
    if options.fixed is None and not adds_integers(model):
        split = "test" if Path(data).is_dir() else "train"
        samples = open_dataset(data, model, limit=_SAMPLES, split=split, folder=folder)
        calibration = CalibrationSamples(samples, min(options.batch or _BATCH, _BATCH))
        quantised, notes = quantized_first(model, calibration, progress)
    graphs = []
    for bits in options.operands():
        is_changed = bits != (None, None)
        own = loading.from_proto(narrow(quantised.proto, *bits)) if is_changed else quantised
        graphs.append(GraphVariant(own, *bits))
    return tuple(graphs), notes


def quantized_first(
    model: Model, batches: CalibrationSamples, progress: Progress
) -> tuple[Model, tuple[str, ...]]:
    """Returns `model`, with a note: a float model is quantised with ranges on `batches`."""
    if adds_integers(model):
        return model, ()
    with TemporaryFolder() as work:
        options = QuantizationOptions()
        prepared, path = quantized_graphs(model, batches, options, work, progress)
        left = floats_notes(onnx.load(prepared, load_external_data=False), options)
        quantised = replace(loading.from_proto(onnx.load(path)), subject=model.name)
    limit = batches.dataset.limit
    samples = "all samples" if limit is None else f"up to {plural(limit, 'sample')}"
    note = (
        f"{model.name} is a float model and was quantised first, as tracer quantize does: int8 "
        f"weights per channel, uint8 activations, ranges of {samples} "
        f"of {batches.dataset.name}"
    )
    return quantised, (note, *batches.dataset.notes, *left)


def identity(
    model: Model,
    batches: StoredBatches,
    fingerprint: str,
    metric: Metric,
    options: WhatIfOptions,
    changes: Sequence[str],
) -> dict[str, str]:
    """Everything that all evaluations of a file depend on, by names that a user knows.

    `fingerprint` is that of the data. `changes` lists what was done to the model. Widths and budget
    are excluded on purpose: changing them must not invalidate cached evaluations.
    """
    scored_by = metric.name
    file, colon, _ = metric.name.rpartition(":")
    if colon:  # FILE.py:NAME
        scored_by += f" ({hashlib.sha256(Path(file).read_bytes()).hexdigest()[:_DIGITS]})"
    dataset = batches.dataset
    count = dataset.samples
    data = dataset.name if count is None else f"{plural(count, 'sample')} of {dataset.name}"
    values = {
        "model": f"{model.name} ({model.sha256[:_DIGITS]})",
        "data": f"{data} ({fingerprint[:_DIGITS]})",
        "metric": scored_by,
        "batch": str(batches.size),
        "fixed": options.fixed or "none",
        "tracer": environment.versions().get("tracer-onnx", "not installed"),
    }
    weights = WeightFiles.of(model).hashes
    if weights:
        values["weights"] = ", ".join(f"{n} ({h[:_DIGITS]})" for n, h in weights.items())
    if model.operators.fingerprint:
        values["operators"] = model.operators.fingerprint[:_DIGITS]
    if changes:  # the graph depends on onnxruntime's quantiser
        values["onnxruntime"] = environment.version_of("onnxruntime", environment.versions())
    return {name: bare_text(value) for name, value in values.items()}  # the hashes tell files apart


def variant_key(
    graph: GraphVariant,
    accumulator: Accumulator,
    hardest: int | None = None,
    orders: Sequence[str] = (),
) -> str:
    """Everything else that the evaluations of one variant depend on, as JSON.

    `hardest` is the number of samples of evaluations on the hardest samples alone; `orders` tell
    the orders of a runtime's kernels.
    """
    properties = accumulator.to_plain()
    del properties["bits"]
    bits = {"weight_bits": graph.weight_bits, "activation_bits": graph.activation_bits}
    part = {} if hardest is None else {"hardest": hardest}
    found = {"orders": orders} if orders else {}
    return msgspec.json.encode({**bits, **properties, **part, **found}).decode()


_RANGE = re.compile(r"([0-9]{1,4})(?::([0-9]{1,4})(?::([0-9]{1,4}))?)?")
_HINT = (
    "Widths are a range such as 12:32 (or 12:32:2), or a list such as 12,14,16; "
    "for some nodes, 'conv1=18,*=12:32'."
)


@dataclass(frozen=True, slots=True)
class WidthPlan:
    """Widths by pattern, in ascending order; the first entry that matches a node applies."""

    entries: tuple[policies.Entry[tuple[int, ...]], ...]

    @property
    def swept(self) -> policies.Entry[tuple[int, ...]]:
        """The entry that is swept: the last with several widths, else the last. Others are pins."""
        several = [entry for entry in self.entries if len(entry.value) > 1]
        return (several or self.entries)[-1]

    @property
    def ends(self) -> tuple[int, int]:
        """The narrowest and the widest width of all entries."""
        widths = [bits for entry in self.entries for bits in entry.value]
        return min(widths), max(widths)

    def __str__(self) -> str:
        return ",".join(entry.text for entry in self.entries)

    def policy(self, accumulator: Accumulator) -> policies.Policy:
        """Returns `accumulator` for the nodes that the plan names, at their widest width."""
        return policies.Policy(
            tuple(
                policies.Entry(each.pattern, replace(accumulator, bits=each.value[-1]), each.text)
                for each in self.entries
            )
        )

    def pins(self, nodes: Sequence[Node]) -> Iterator[Pins]:
        """Yields every combination of pinned widths; one without pins where no entry is one.

        Raises UsageError for an entry that matches no node.
        """
        patterns = {
            key: entry.pattern for key, entry in policies.first_matches(self.entries, nodes).items()
        }
        pinned = [entry for entry in self.entries if entry is not self.swept]
        for combination in itertools.product(*(entry.value for entry in pinned)):
            bits = {entry.pattern: b for entry, b in zip(pinned, combination, strict=True)}
            yield Pins(
                ",".join(f"{pattern}={width}" for pattern, width in bits.items()),
                {key: bits[pattern] for key, pattern in patterns.items() if pattern in bits},
            )


def read_widths(widths: str | Sequence[int]) -> WidthPlan:
    """Parses `12:32`, `12:32:2`, `12,14,16` or `conv1=18,fc1=12:16,*=20`.

    A pattern may occur several times, and then has the widths of all its entries. Raises UsageError
    for other text, and for an empty range.
    """
    text = widths if isinstance(widths, str) else ",".join(map(str, widths))
    if text.strip().endswith(policies.POLICY_FILE):
        raise UsageError(f"{text.strip()}: a policy file has one width for each node", _HINT)
    parts: dict[str, list[tuple[str, range]]] = {}
    for entry, pattern, span in policies.split_entries(text, _HINT):
        match = _RANGE.fullmatch(span)
        if match is None:
            names = (name for kind in kinds.KINDS for name in kind.names())
            near = suggest(span.partition("(")[0], names) if "=" not in entry else ""
            what = f"accumulator '{entry}': '{span}' is no width and no range"
            raise UsageError(what, f"{near}{_HINT}")
        first = int(match[1])
        last, step = int(match[2] or first), int(match[3] or 1)
        if step < 1:
            raise UsageError(f"accumulator '{entry}': steps of {step}", _HINT)
        if last < first:
            raise UsageError(f"accumulator '{entry}': the range is empty", f"Is it {last}:{first}?")
        parts.setdefault(pattern, []).append((entry, range(first, last + 1, step)))
    merged = []
    for pattern, entries in parts.items():
        values = {bits for _, part in entries for bits in part}
        texts = ",".join(entry for entry, _ in entries)
        merged.append(policies.Entry(pattern, tuple(sorted(values)), texts))
    return WidthPlan(tuple(merged))
