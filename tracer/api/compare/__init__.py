"""Compare models and recordings: alternate runs of the sides that are run now, then compare."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api._calls import by_rules as contained
from tracer.errors import UsageError
from tracer.support.arguments import RULES, amount, maybe, several
from tracer.support.progress import Progress

if TYPE_CHECKING:
    from tracer.analyzers.compare import Comparison
    from tracer.analyzers.compare.sweep import Sweeps
    from tracer.limits import Limits
    from tracer.support.tolerance import Tolerance

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from typing import Any

from tracer.support.arguments import PATH, check_arguments, either, mapping

_SETTING_RULES = {"arguments": RULES["args"], "weights": maybe(either(PATH, mapping(PATH)))}


@dataclass(frozen=True, slots=True)
class SideSettings:
    """How sides that are run now are run; the names are those of `tracer.profile`.

    `weights` is a file for all models of frameworks, or a file for each framework by name.
    `provider_options` are those of the sides on another provider of onnxruntime than the CPU.
    `register` are libraries of custom operators for onnxruntime. `input_shape` also sets the open
    dimensions of ONNX models. Layers take turns in `sessions` of each side. So do whole runs of
    several sides, in more sessions until the interval of their ratio is no wider than `precision`,
    a share, either way.
    """

    batch: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    feeds: Path | None = None
    seed: int = 0
    threads: int = 0
    optimization: str = "all"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | Mapping[str, Path] | None = None
    train: bool = False
    backward: bool = False
    device: str = "cpu"
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None
    input_dtype: str | Sequence[str] = "float32"
    provider_options: Mapping[str, str] = field(default_factory=dict)
    register: Sequence[str | Path] = ()
    precision: float = 0.01
    sessions: int = 24

    def __post_init__(self) -> None:
        """Raises UsageError for a value that is not allowed."""
        check_arguments(
            {each.name: getattr(self, each.name) for each in fields(self)}, _SETTING_RULES
        )

    def shapes(self, batch: int | None) -> list[tuple[int, ...]] | None:
        """Returns the shapes of `input_shape`, at another batch if there is one."""
        if self.input_shape is None:
            return None
        from tracer.exporters.records import input_specs

        specs = input_specs(self.input_shape, "float32")
        return [(spec if batch is None else spec.with_batch(batch)).shape for spec in specs]

    def weights_of(self, framework: str) -> Path | None:
        """Returns the file of weights for models of this framework."""
        if isinstance(self.weights, Mapping):
            return self.weights.get(framework)
        return self.weights


_DEFAULT = SideSettings()
_OWN = {"precision": amount()}
"""Unlike a profile, a comparison has a precision in any case."""
_RULES = {"threads": maybe(several(RULES["threads"])), **_OWN}


@contained(_RULES)
def compare(
    sides: Sequence[str],
    *,
    by: str = "layer",
    depth: int | None = None,
    settings: SideSettings = _DEFAULT,
    tolerance: Tolerance | None = None,
    fail_above: float | None = None,
    fail_unless_within: float | None = None,
    threads: Sequence[int] | None = None,
    test: str | Path | None = None,
    test_limit: int | None = None,
    metrics: Sequence[str] | None = None,
    folder: str | Path = "data",
    progress: Progress | None = None,
    limits: Limits | None = None,
    in_process: bool = False,
) -> Comparison:
    """Compares each of `sides` with the first one, in time and work.

    Sides are named as on the command line (see `tracer.api.compare.naming`). Those that are not
    saved traces are run now, alternating. With a `tolerance` their values are compared as well, on
    the inputs of the first ONNX model (see `tracer.api.compare.naming`). With `threads`, each side
    is compared at each of these numbers of threads, instead of that of the settings.

    With `test`, the ONNX models are also scored on the first `test_limit` samples of this data set,
    by `metrics` (see `tracer.metrics`) [default: one that fits the labels, and agreement with the
    first side]. Files of named sets are in `folder`.

    The comparison has `verdicts` where shares of the time are given: a side fails if it is shown
    to be slower by more than `fail_above`, and if it is not shown to be as fast, within
    `fail_unless_within` either way. `passed` sums them up.

    Sides run in a child process, within `seconds` and `process_bytes` of `limits`, or with
    `in_process` in this one. Raises the errors of `tracer.errors`; InputError if the models have
    too little in common.
    """
    from tracer.analyzers.compare.totals import Equivalent, Gate, NotSlower, verdicts_of
    from tracer.api.compare import running
    from tracer.api.compare.values import Scoring
    from tracer.inputs.request import Samples

    if test is None and (test_limit or metrics):
        raise UsageError("a limit or a metric without data", "Name a data set: --data text:FILE.")
    if len(sides) * max(len(set(threads or ())), 1) < 2:
        raise UsageError("one side alone cannot be compared", "Name two or more.")
    scoring = None
    if test is not None:
        scoring = Scoring(Samples(str(test), test_limit, Path(folder)), metrics or ())
    comparison = running.compare(sides, by, depth, settings, tolerance, threads, scoring, progress)
    gates: list[Gate] = [] if fail_above is None else [NotSlower(fail_above)]
    if fail_unless_within is not None:
        gates.append(Equivalent(fail_unless_within))
    return replace(comparison, verdicts=verdicts_of(comparison.totals, gates))


@contained(_OWN)
def sweep(
    sides: Sequence[str],
    batches: Sequence[int],
    *,
    settings: SideSettings = _DEFAULT,
    progress: Progress | None = None,
    limits: Limits | None = None,
    in_process: bool = False,
) -> Sweeps:
    """Compares batch sizes of each of `sides`; a saved trace must have a run of each.

    Runs alternate between batch sizes and models, in a child process, within `seconds` and
    `process_bytes` of `limits`, or with `in_process` in this one. Raises UsageError for a side
    without these sizes, and the other errors of `tracer.errors`.
    """
    from tracer.api.compare import running

    return running.sweep(sides, batches, settings, progress)
