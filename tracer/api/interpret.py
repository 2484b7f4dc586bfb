"""Runs an ONNX model in the reference interpreter, with or without narrow accumulators."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

from analyzers import energy as energy_models
from analyzers import observed_shapes
from analyzers.options import DEFAULT_ENERGY_MODEL
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Policy, Rule
from tracer.accumulators.spec.policy_text import policy
from tracer.api._assembly import Pricing, analyze, assembled, configured, energy_settings
from tracer.errors import UsageError
from tracer.executors import registry
from tracer.executors.protocol import Receive
from tracer.graph import shape_inference
from tracer.graph.loading import ModelSource, open_model
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.inputs.request import InputPaths, Request, Samples, request_for
from tracer.limits import Limits, enforced
from tracer.records.trace import Trace
from tracer.support.arguments import check_arguments
from tracer.support.progress import Progress, silent
from tracer.support.tolerance import Tolerance

_NARROW = "Set an accumulator as well, as in --accumulator 16."


class Receiver(Protocol):
    """Takes the outputs of every batch of one model."""

    def start(self, model: Model) -> None:
        """Called before the run; raises an error of `tracer.errors` to prevent it."""

    def receive(self, feedset: FeedSet, outputs: Sequence[Any]) -> None:
        """Called with the feeds and the outputs of every batch."""


@dataclass(frozen=True, slots=True)
class _Job:
    """What an executor runs, and how; `first` are the first of its inputs.

    `chosen` are settings of the executor, `settings` are what the trace says of them, and `rules`
    are the accumulators of the nodes by key.
    """

    executor: str
    inputs: FeedSet | Iterable[FeedSet]
    first: FeedSet
    chosen: dict[str, object]
    settings: dict[str, object]
    rules: Mapping[str, Rule] = field(default_factory=dict)


def interpret(
    model: ModelSource,
    *,
    batch: int | None = None,
    dims: Mapping[str, int] | None = None,
    feeds: InputPaths | Samples = None,
    seed: int = 0,
    runs: int = 5,
    warmup: int | None = 1,
    threads: int = 0,
    against: Literal["ort"] | None = None,
    tolerance: Tolerance | None = None,
    accumulator: int | str | Accumulator | Policy | None = None,
    fixed: str | None = None,
    by_sample: bool = False,
    limits: Limits | None = None,
    convention: str = "plain",
    energy: str | None = None,
    progress: Progress | None = None,
    receive: Receive | None = None,
    receivers: Sequence[Receiver] = (),
) -> Trace:
    """Runs `model` node by node in the reference interpreter, for one batch size.

    The node table has the columns of `profile`, and statistics of each node's values. With
    `against="ort"`, it has the differences from onnxruntime without optimisation; `run.values`
    says which nodes exceed `tolerance`. `runs` inferences are timed after `warmup` others;
    None warms up once where an inference takes less than a second.

    With an `accumulator`, sums are computed in narrow accumulators, in one inference for each
    batch, and the overflow columns are filled instead. An accumulator is a width, a policy as text
    (`conv1=18,*=17`), the path of a TOML file, or an object of `tracer.accumulators`; `fixed` are
    the fixed-point formats of float operands, as in `8:5/8:7`.

    `energy` names the model of `analyzers.energy` that fills the column `energy`, per run. The
    default is `lab` with an `accumulator`, and no energies without one.

    `feeds` are chosen as in `profile`. With an `accumulator`, they may be many .npz files and
    test_data_set folders, which are split into batches of `batch` rows, or `Samples` of a data set
    in batches of `batch` (64). With `by_sample`, samples run one at a time, and
    `run.sums_by_sample` says what overflowed in each. `receive` is called with the feeds and the
    outputs of every batch, and so are `receivers`, which are called with the model before.

    Raises the errors of `tracer.errors`, among them LimitError for a run beyond `limits`.
    """
    check_arguments(locals())
    _check_combination(accumulator is not None, against, batch, by_sample)
    if energy is None and accumulator is not None:
        energy = DEFAULT_ENERGY_MODEL
    energy_model = None if energy is None else energy_models.find(energy)
    loaded = open_model(model)
    for receiver in receivers:
        receiver.start(loaded)
    request = request_for(model, loaded, 1 if by_sample else batch, dims, feeds, seed)
    with enforced(limits or Limits()):
        if accumulator is None:
            job = _plain(request, runs, warmup, threads, against, tolerance)
        else:
            job = _narrow(request, accumulator, fixed, by_sample)
    chosen = {"threads": threads or None, "limits": limits, "receive": _to_all(receive, receivers)}
    measuring = registry.settings_for(job.executor, job.chosen | chosen)
    executor = registry.find(job.executor)
    profiled = executor.profile(loaded, job.inputs, measuring, progress or silent)
    run = configured(profiled.run, measuring)
    observation = observed_shapes.of(loaded, run.kernels)
    types = shape_inference.infer(loaded, job.first.shapes).updated(observation.types)
    narrow = {sums.node: job.rules[sums.node] for sums in run.sums}
    pricing = None if energy_model is None else Pricing(energy_model, narrow)
    analyzed = [analyze(loaded, run, types, observation.calls, convention, pricing=pricing)]
    recorded = {
        "threads": threads, **job.settings, "batch": batch, "dims": dims, "feeds": feeds,
        "seed": seed, "convention": convention, "energy": energy_settings(energy_model),
    }  # fmt: skip
    return assembled(loaded, analyzed, recorded)


def _check_combination(
    is_narrow: bool, against: str | None, batch: int | None, by_sample: bool
) -> None:
    if against is not None and is_narrow:
        raise UsageError("a narrow accumulator differs from onnxruntime", "Leave out one of them.")
    if by_sample and not is_narrow:
        raise UsageError("only narrow accumulators have statistics by sample", _NARROW)
    if by_sample and batch not in (None, 1):
        raise UsageError(f"statistics by sample in batches of {batch}", "Leave out the batch.")


def _plain(
    request: Request, runs: int, warmup: int | None, threads: int, against: str | None,
    tolerance: Tolerance | None,
) -> _Job:  # fmt: skip
    """Times the inferences of one batch."""
    feedset = request.feeds()
    expected = None if against is None else _tensors(against, request.model, feedset, threads)
    timed: dict[str, object] = {"runs": runs, "warmup": warmup}
    chosen = timed | {"expected": expected, "tolerance": tolerance}
    return _Job(registry.REFERENCE, feedset, feedset, chosen, timed | {"against": against})


def _narrow(request: Request, accumulator: Any, fixed: str | None, by_sample: bool) -> _Job:
    """Counts the overflow of all batches."""
    batches, narrowed = request.batches(), policy(accumulator, fixed)
    counted: dict[str, object] = {"by_sample": by_sample}
    return _Job(
        registry.NARROWED, batches, next(iter(batches)), counted | {"policy": narrowed},
        counted | {"accumulator": accumulator, "fixed": fixed},
        narrowed.assign(request.model.nodes),
    )  # fmt: skip


def _tensors(name: str, model: Model, feedset: FeedSet, threads: int) -> Mapping[str, Any]:
    """Returns every tensor of the nodes of `model`, computed by the executor `name`."""
    chosen = registry.settings_for(name, {"threads": threads or None, "optimization": "none"})
    return registry.find_tensors(name).tensors(model, feedset, chosen).by_name


def _to_all(receive: Receive | None, receivers: Sequence[Receiver]) -> Receive:
    callbacks = [*([receive] if receive else []), *(receiver.receive for receiver in receivers)]
    return lambda feedset, outputs: [callback(feedset, outputs) for callback in callbacks]
