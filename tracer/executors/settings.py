"""Settings of executors: how many runs, and how onnxruntime or a framework runs a model.

Commands read them for their options, so nothing heavy is imported here.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tracer.errors import InputError, UsageError
from tracer.support.arguments import check_arguments
from tracer.text import suggest

OPTIMIZATIONS = ("none", "basic", "extended", "all")
_LEAST_RUNS, _FEWEST_RUNS = 10, 3
"""Default runs at least, and of a slow model: two have no spread worth the name."""
_DEFAULT_SECONDS = 0.5
_PRECISE_SECONDS = 1.5
"""Seconds of runs by default, and the most for rows that are not precise yet."""
PRECISION = 0.05
"""Share of the times of the slowest rows to which they are known by default."""
_MOST_SECONDS = 10.0
"""Seconds of runs after which fewer than `_LEAST_RUNS` are enough, unless their number is set.
Undisturbed and warm-up runs take about as long again."""
LOSSES = ("sum", "cross-entropy")
OPTIMIZERS = ("sgd", "adam")
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class MeasuringSettings:
    """Number of runs; `threads` 0 is the runtime's default.

    `runs` is the least number of runs [default: 10, or 10 s of them but 3]. Runs are repeated until
    they take `min_time` seconds [default: 0.5 without `runs`, else 0], and without both until each
    of the ten slowest kernels is known within `precision` [default: 5 %] of its time or told from
    its neighbours, for 1.5 s at most, or 10 s with a `precision` of one's own.
    """

    runs: int | None = None
    warmup: int = 5
    min_time: float | None = None
    threads: int = 0
    precision: float | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for values out of range."""
        names = ["runs", "warmup", "min_time", "threads"]
        names += [] if self.precision is None else ["precision"]
        check_arguments({name: getattr(self, name) for name in names})

    def missing_runs(
        self, runs: int, seconds: float, expected_s: float = 0.0, spread: float = 0.0
    ) -> int:
        """Returns how many runs to add, by number, time and precision, to `runs` of `seconds`.

        `expected_s` is the time of a run where none is recorded yet, if it is known. `spread` is
        that of the kernels so far (see `tracer.executors.measuring`).
        """
        min_seconds = self.min_time
        if min_seconds is None:
            min_seconds = 0.0 if self.runs is not None else _DEFAULT_SECONDS
        by_time = 0
        if runs and seconds < min_seconds:
            by_time = int(runs / max(seconds, 1e-9) * (min_seconds - seconds)) + 1
        run_s = seconds / runs if runs else expected_s
        if self.runs is not None:
            least = self.runs
        else:
            affordable = _LEAST_RUNS if run_s <= 0 else int(_MOST_SECONDS / run_s)
            least = min(_LEAST_RUNS, max(_FEWEST_RUNS, affordable))
        by_precision = 0
        if spread > 1 and runs:  # it shrinks as their root grows, to 1
            most_s = _PRECISE_SECONDS if self.precision is None else _MOST_SECONDS
            affordable = int((most_s - seconds) / max(seconds, 1e-9) * runs)
            by_precision = min(int(runs * (spread**2 - 1)) + 1, affordable)
        return max(0, least - runs, by_time, by_precision)

    def notes(self, runs: int, seconds: float) -> tuple[str, ...]:
        """Returns a note where `runs` are fewer than usual, as they took `seconds`."""
        if self.runs is not None or not 0 < runs < _LEAST_RUNS:
            return ()
        return (
            f"{runs} runs instead of {_LEAST_RUNS}, as one takes {seconds / runs:.2g} s; --runs "
            "sets their number",
        )


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a session runs a model, beside its threads and level; the defaults are onnxruntime's.

    Nodes that do not wait for each other run in `parallel`, on `inter_op_threads` (0: a thread for
    each core). `dims` fixes symbolic dimensions when the session opens. `entries` are further
    entries of the session's configuration. `disabled` are optimisers of graphs that are left out.
    Inputs and outputs are `bound` to memory that all runs share, instead of copied in each.
    `flushes_denormals` replaces numbers too small to be normal by 0.
    """

    parallel: bool = False
    inter_op_threads: int = 0
    memory_pattern: bool = True
    arena: bool = True
    dims: Mapping[str, int] = field(default_factory=dict)
    entries: Mapping[str, str] = field(default_factory=dict)
    disabled: tuple[str, ...] = ()
    bound: bool = False
    flushes_denormals: bool = False


@dataclass(frozen=True, slots=True)
class OrtSettings(MeasuringSettings):
    """Settings of one profile; by default onnxruntime uses a thread for each physical core.

    `provider` is the long or the short name of a provider; `provider_options` are its own, by name.
    `register` are libraries with operators of a user's own, whose code the sessions run.
    """

    optimization: str = "all"
    provider: str = "cpu"
    session: SessionSettings = SessionSettings()
    provider_options: Mapping[str, str] = field(default_factory=dict)
    register: Sequence[str | Path] = ()

    def __post_init__(self) -> None:
        """Raises UsageError for values out of range, InputError for a library that is no file."""
        MeasuringSettings.__post_init__(self)  # super() does not work in a class with slots
        if self.optimization not in OPTIMIZATIONS:
            raise UsageError(
                f"there is no optimization '{self.optimization}'",
                f"{suggest(self.optimization, OPTIMIZATIONS)}The levels are "
                f"{', '.join(OPTIMIZATIONS)}.",
            )
        for library in self.register:
            if not Path(library).is_file():
                raise InputError(
                    f"{library}: no such file", "--register takes a library of custom operators."
                )


@dataclass(frozen=True, slots=True)
class EagerSettings(MeasuringSettings):
    """Settings of one profile.

    A run is an inference; with `train` the forward pass of a training step, in training mode and
    recorded for gradients; with `backward` a training step: forward pass, `loss` [default: sum],
    backward pass, and the step of `optimizer` if set. `seed` is for dropout and random targets.
    `names` are the keywords that the inputs are given by; without, they are given by position.
    """

    seed: int = 0
    device: str = "cpu"
    backward: bool = False
    loss: str | None = None
    optimizer: str | None = None
    train: bool = False
    names: tuple[str, ...] = ()

    def call(self, model: Callable[..., Any], inputs: Sequence[Any]) -> Any:
        """Returns what `model` returns for its inputs."""
        return model(**dict(zip(self.names, inputs, strict=True))) if self.names else model(*inputs)

    @property
    def training(self) -> bool:
        """Whether modules run in training mode, and gradients can be computed."""
        return self.train or self.backward

    def __post_init__(self) -> None:
        """Raises UsageError for values out of range, and for options that exclude each other."""
        MeasuringSettings.__post_init__(self)  # super() does not work in a class with slots
        for name, choices in (("loss", LOSSES), ("optimizer", OPTIMIZERS), ("device", DEVICES)):
            value = getattr(self, name)
            if value is not None and value not in choices:
                raise UsageError(f"there is no {name} '{value}'", f"Give {' or '.join(choices)}.")
        for name in ("loss", "optimizer"):
            if getattr(self, name) is not None and not self.backward:
                raise UsageError(f"{name} is for a training step", "Ask for the backward pass too.")
        if self.train and self.backward:
            raise UsageError(
                "train is the forward pass of a training step, and backward the whole step",
                "Give one of them.",
            )
