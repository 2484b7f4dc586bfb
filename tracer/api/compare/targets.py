"""What a user names as a side of a comparison, and how it is run.

`run.trace` was measured before; `model.onnx`, `model.onnx@ort:basic` and `model.onnx@interpreter`
are run now, and so is `FILE.py:NAME@torch`, a framework's own model.
"""

from __future__ import annotations

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol

from tracer.api.framework import profile_framework
from tracer.api.interpret import interpret
from tracer.api.profile import profile
from tracer.errors import InputError, UsageError
from tracer.executors.onnxruntime.settings import OPTIMIZATIONS
from tracer.graph.loading import open_model
from tracer.graph.model import Model
from tracer.records.trace import Trace
from tracer.storage import trace_file
from tracer.support.optional import not_installed
from tracer.support.progress import Progress

ORT, INTERPRETER = "ort", "interpreter"
FRAMEWORKS = ("torch", "chainer")
_INTERPRETED_RUNS = 5
_FORMS = (
    "A side is FILE.trace, FILE.onnx, FILE.onnx@ort, @ort:none … @ort:all or @interpreter, "
    "or FILE.py:NAME@torch or @chainer."
)


@dataclass(frozen=True, slots=True)
class Settings:
    """How the sides that are run now are run; those of `tracer.profile` where they are its."""

    batch: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    feeds: Path | None = None
    seed: int = 0
    warmup: int = 2
    threads: int = 0
    optimization: str = "all"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | None = None
    backward: bool = False
    device: str = "cpu"


_FLAGS = {
    "dims": "--dim", "feeds": "--inputs", "seed": "--seed", "warmup": "--warmup",
    "threads": "--threads", "optimization": "--optimization", "arguments": "--arg",
    "weights": "--weights", "backward": "--backward", "device": "--device",
}  # fmt: skip
"""How the command line calls the settings that not every side heeds."""

_BY_ONNX = frozenset({"dims", "feeds", "seed", "warmup", "threads"})
_BY_FRAMEWORK = frozenset(
    {"arguments", "weights", "seed", "warmup", "threads", "backward", "device"}
)


class Target(Protocol):
    """A side that is run now."""

    @property
    def label(self) -> str:
        """What to call it."""

    @property
    def heeds(self) -> frozenset[str]:
        """The settings that make a difference to it, besides the batch size."""

    def run(self, runs: int | None, settings: Settings, progress: Progress | None = None) -> Trace:
        """A trace of one run, of so many inferences; None leaves the number to the executor."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A saved trace."""

    label: str
    trace: Trace = field(repr=False)
    heeds: ClassVar[frozenset[str]] = frozenset()


@dataclass(frozen=True, slots=True)
class OnOnnxruntime:
    """An ONNX model under onnxruntime; `optimization` None is that of the settings."""

    label: str
    model: Model = field(repr=False)
    source: Path
    optimization: str | None = None

    @property
    def heeds(self) -> frozenset[str]:
        """Those of the model, and the optimisation where the side names none."""
        return _BY_ONNX if self.optimization else _BY_ONNX | {"optimization"}

    def run(self, runs: int | None, settings: Settings, progress: Progress | None = None) -> Trace:
        """Profile it."""
        return profile(
            self.model,
            batch=settings.batch,
            dims=settings.dims,
            feeds=_feeds(self.source, settings),
            seed=settings.seed,
            runs=runs,
            warmup=settings.warmup,
            threads=settings.threads,
            optimization=self.optimization or settings.optimization,
            confirm=False,  # in every one of many rounds
            progress=progress,
        )


@dataclass(frozen=True, slots=True)
class OnInterpreter:
    """An ONNX model in the reference interpreter."""

    label: str
    model: Model = field(repr=False)
    source: Path
    heeds: ClassVar[frozenset[str]] = _BY_ONNX

    def run(self, runs: int | None, settings: Settings, progress: Progress | None = None) -> Trace:
        """Interpret it."""
        return interpret(
            self.model,
            batch=settings.batch,
            dims=settings.dims,
            feeds=_feeds(self.source, settings),
            seed=settings.seed,
            runs=runs or _INTERPRETED_RUNS,
            warmup=min(settings.warmup, 1),
            threads=settings.threads,
            progress=progress,
        )


@dataclass(frozen=True, slots=True)
class InFramework:
    """A framework's model, run eagerly. Every run of it loads it anew."""

    label: str
    source: str
    framework: str
    heeds: ClassVar[frozenset[str]] = _BY_FRAMEWORK

    def run(self, runs: int | None, settings: Settings, progress: Progress | None = None) -> Trace:
        """Profile it."""
        return profile_framework(
            self.source,
            framework=self.framework,
            args=settings.arguments,
            weights=settings.weights,
            batch=settings.batch,
            runs=runs,
            warmup=settings.warmup,
            threads=settings.threads,
            seed=settings.seed,
            backward=settings.backward,
            device=settings.device,
            progress=progress,
        )


@dataclass(frozen=True, slots=True)
class AtBatch:
    """A side at a batch size of its own."""

    label: str
    side: Target
    batch: int

    @property
    def heeds(self) -> frozenset[str]:
        """Those of the side."""
        return self.side.heeds

    def run(self, runs: int | None, settings: Settings, progress: Progress | None = None) -> Trace:
        """Run the side at that batch size."""
        return self.side.run(runs, replace(settings, batch=self.batch), progress)


def parse(text: str) -> Recorded | Target:
    """The side that `text` names. Raises UsageError or InputError where there is no such thing."""
    place, at, how = text.rpartition("@")
    if not at or Path(text).exists():
        place, how = text, ""
    if how in FRAMEWORKS:
        if importlib.util.find_spec(how) is None:
            raise not_installed(text, ModuleNotFoundError(name=how))
        return InFramework(text, place, how)
    if how == "" and Path(place).suffix == ".trace":
        return Recorded(text, trace_file.load(place))
    if how == "" and ".py:" in place:
        raise UsageError(f"{text}: no framework is named", f"Add @{' or @'.join(FRAMEWORKS)}.")
    executor, _, level = how.partition(":")
    if executor not in ("", ORT, INTERPRETER) or (level and executor != ORT):
        raise UsageError(f"{text}: there is no executor '{how}'", _FORMS)
    if level not in ("", *OPTIMIZATIONS):
        raise UsageError(
            f"{text}: there is no optimization '{level}'",
            f"The levels are {', '.join(OPTIMIZATIONS)}.",
        )
    if not place or not Path(place).exists():
        raise InputError(f"{place or repr(text)}: no such file", _FORMS)
    model = open_model(place)
    if executor == INTERPRETER:
        return OnInterpreter(text, model, Path(place))
    return OnOnnxruntime(text, model, Path(place), level or None)


def refuse_idle(
    sides: Sequence[Recorded | Target], settings: Settings, rounds: int | None, runs: int | None
) -> None:
    """Raise UsageError for settings that are given and make a difference to no side."""
    plain = Settings()
    heeded = frozenset[str]().union(*(side.heeds for side in sides))
    idle = [
        flag
        for name, flag in _FLAGS.items()
        if name not in heeded and getattr(settings, name) != getattr(plain, name)
    ]
    if all(isinstance(side, Recorded) for side in sides):
        idle += [flag for flag, given in (("--rounds", rounds), ("--runs", runs)) if given]
    if idle:
        kinds = ", ".join(dict.fromkeys(_kind(side) for side in sides))
        raise UsageError(
            f"{', '.join(idle)} would do nothing: the sides are {kinds}",
            "Leave that out, or name a side that it is for.",
        )


def _kind(side: Recorded | Target) -> str:
    if isinstance(side, Recorded):
        return "recorded traces"
    return "models of a framework" if isinstance(side, InFramework) else "ONNX models"


def distinct(sides: list[Recorded | Target]) -> list[Recorded | Target]:
    """The sides by the names of their files, where those tell them apart, else by number."""
    short = [side.label.rpartition("/")[2] for side in sides]
    if len(set(short)) == len({side.label for side in sides}):
        sides = [replace(side, label=label) for side, label in zip(sides, short, strict=True)]  # type: ignore[type-var]
    taken: dict[str, int] = {}
    found = []
    for side in sides:
        taken[side.label] = count = taken.get(side.label, 0) + 1
        found.append(replace(side, label=f"{side.label} #{count}") if count > 1 else side)  # type: ignore[type-var]
    return found


def _feeds(source: Path, settings: Settings) -> Path | None:
    """The feeds asked for, else the test data of a model that was given as a folder."""
    if settings.feeds or settings.batch is not None or settings.dims or not source.is_dir():
        return settings.feeds
    return next(iter(sorted(source.glob("test_data_set_*"))), None)
