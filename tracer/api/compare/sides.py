"""The sides of a comparison: what a user names, and how each side is run.

`run.trace` is a saved recording. `model.onnx`, `model.onnx@ort:basic`, `model.onnx@interpreter` and
`FILE.py:NAME@torch`, a framework's own model, are run now.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, TypeAlias

from exporters.frameworks import frameworks
from tracer.api.framework import profile_framework
from tracer.api.profile import profile
from tracer.errors import InputError, UsageError
from tracer.executors import registry
from tracer.graph.loading import open_model
from tracer.graph.model import Model
from tracer.records.trace import Trace
from tracer.storage import trace_file
from tracer.support.arguments import RULES, check_arguments
from tracer.support.optional import not_installed
from tracer.support.progress import Progress

_DEFAULT, _LEVEL = "ort", "optimization"
_FORMS = (
    "A side is FILE.trace, FILE.onnx, FILE.onnx@ort, @ort:none … @ort:all or @interpreter, "
    "or FILE.py:NAME@torch or @chainer."
)


@dataclass(frozen=True, slots=True)
class SideSettings:
    """How sides that are run now are run; the names are those of `tracer.profile`."""

    batch: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    feeds: Path | None = None
    seed: int = 0
    warmup: int = 2
    threads: int = 0
    optimization: str = "all"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | None = None
    train: bool = False
    backward: bool = False
    device: str = "cpu"

    def __post_init__(self) -> None:
        """Raises UsageError for a value that is not allowed."""
        values = {f.name: getattr(self, f.name) for f in fields(self)}
        check_arguments(values, {"arguments": RULES["args"]})


_FLAGS = {
    "dims": "--dim", "feeds": "--inputs", "seed": "--seed", "warmup": "--warmup",
    "threads": "--threads", "optimization": "--optimization", "arguments": "--arg",
    "weights": "--weights", "train": "--train", "backward": "--backward", "device": "--device",
}  # fmt: skip
"""Options of the settings that some kinds of sides do not use."""

_ONNX_SETTINGS = frozenset({"dims", "feeds", "seed", "warmup", "threads"})
_FRAMEWORK_SETTINGS = frozenset(
    {"arguments", "weights", "seed", "warmup", "threads", "train", "backward", "device"}
)


class LiveSide(Protocol):
    """A side that is run now."""

    @property
    def label(self) -> str:
        """Its name in the results."""

    def run(
        self, runs: int | None, settings: SideSettings, progress: Progress | None = None
    ) -> Trace:
        """Returns a trace of one run of `runs` inferences [default: the executor's]."""


@dataclass(frozen=True, slots=True)
class Recorded:
    """A saved trace."""

    label: str
    trace: Trace = field(repr=False)
    uses: ClassVar[frozenset[str]] = frozenset()
    kind: ClassVar[str] = "recorded traces"


@dataclass(frozen=True, slots=True)
class OnnxSide:
    """An ONNX model in the executor of this short name.

    `optimization` and `batch` replace those of the settings.
    """

    label: str
    model: Model = field(repr=False)
    source: Path
    executor: str = _DEFAULT
    optimization: str | None = None
    batch: int | None = None
    kind: ClassVar[str] = "ONNX models"

    @property
    def uses(self) -> frozenset[str]:
        """Names of the settings that change its result, besides the batch size."""
        optimized = self.optimization is None and registry.has_setting(self.executor, _LEVEL)
        return _ONNX_SETTINGS | {_LEVEL} if optimized else _ONNX_SETTINGS

    def level(self, settings: SideSettings) -> str | None:
        """Returns the optimisation level; None in an executor without levels."""
        if not registry.has_setting(self.executor, _LEVEL):
            return None
        return self.optimization or settings.optimization

    def run(
        self, runs: int | None, settings: SideSettings, progress: Progress | None = None
    ) -> Trace:
        """Profiles the model."""
        batch = self.batch or settings.batch
        return profile(
            self.model,
            **_measuring(batch, runs, settings),
            dims=settings.dims,
            feeds=_feeds(self.source, settings, batch),
            optimization=self.level(settings),
            confirm=False,  # once for each of many rounds would take too long
            progress=progress,
            executor=self.executor,
        )


@dataclass(frozen=True, slots=True)
class FrameworkSide:
    """A model run eagerly in its framework; each run loads it again. `batch` as in OnnxSide."""

    label: str
    source: str
    framework: str
    batch: int | None = None
    uses: ClassVar[frozenset[str]] = _FRAMEWORK_SETTINGS
    kind: ClassVar[str] = "models of a framework"

    def run(
        self, runs: int | None, settings: SideSettings, progress: Progress | None = None
    ) -> Trace:
        """Profiles the model in its framework."""
        return profile_framework(
            self.source,
            **_measuring(self.batch or settings.batch, runs, settings),
            framework=self.framework,
            args=settings.arguments,
            weights=settings.weights,
            train=settings.train,
            backward=settings.backward,
            device=settings.device,
            progress=progress,
        )


NamedSide: TypeAlias = Recorded | OnnxSide | FrameworkSide


def parse(text: str) -> NamedSide:
    """Returns the side that `text` names. Raises UsageError or InputError if there is none."""
    name, at, executor = text.rpartition("@")
    if not at or Path(text).exists():
        name, executor = text, ""
    if executor in frameworks():
        if importlib.util.find_spec(executor) is None:
            raise not_installed(text, ModuleNotFoundError(name=executor))
        return FrameworkSide(text, name, executor)
    if executor == "" and Path(name).suffix == ".trace":
        return Recorded(text, trace_file.load(name))
    if executor == "" and ".py:" in name:
        raise UsageError(f"{text}: no framework is named", f"Add @{' or @'.join(frameworks())}.")
    engine, _, level = executor.partition(":")
    if engine not in ("", *registry.SHORT_NAMES) or (
        level and not (engine and registry.has_setting(engine, _LEVEL))
    ):
        raise UsageError(f"{text}: there is no executor '{executor}'", _FORMS)
    try:
        registry.settings_for(engine or _DEFAULT, {_LEVEL: level or None})
    except UsageError as error:
        raise UsageError(f"{text}: {error.what}", error.hint) from error
    if not name or not Path(name).exists():
        raise InputError(f"{name or repr(text)}: no such file", _FORMS)
    return OnnxSide(text, open_model(name), Path(name), engine or _DEFAULT, level or None)


def refuse_unused(
    sides: Sequence[NamedSide], settings: SideSettings, rounds: int | None, runs: int | None
) -> None:
    """Raises UsageError for settings that no side uses."""
    default = SideSettings()
    used = frozenset[str]().union(*(side.uses for side in sides))
    unused = [
        flag
        for name, flag in _FLAGS.items()
        if name not in used and getattr(settings, name) != getattr(default, name)
    ]
    if all(isinstance(side, Recorded) for side in sides):
        unused += [flag for flag, count in (("--rounds", rounds), ("--runs", runs)) if count]
    if unused:
        kinds = ", ".join(dict.fromkeys(side.kind for side in sides))
        raise UsageError(
            f"{', '.join(unused)} would do nothing: the sides are {kinds}",
            "Leave that out, or name a side that it is for.",
        )


def with_short_labels(sides: Sequence[NamedSide]) -> list[NamedSide]:
    """Labels sides by file name if that tells them apart; numbers equal labels."""
    short = [side.label.rpartition("/")[2] for side in sides]
    if len(set(short)) == len({side.label for side in sides}):
        sides = [replace(side, label=label) for side, label in zip(sides, short, strict=True)]
    counts: dict[str, int] = {}
    labelled = []
    for side in sides:
        counts[side.label] = count = counts.get(side.label, 0) + 1
        labelled.append(replace(side, label=f"{side.label} #{count}") if count > 1 else side)
    return labelled


def _measuring(batch: int | None, runs: int | None, settings: SideSettings) -> dict[str, Any]:
    """Returns the arguments that models of all kinds have."""
    shared = {name: getattr(settings, name) for name in ("seed", "warmup", "threads")}
    return {"batch": batch, "runs": runs, **shared}


def _feeds(source: Path, settings: SideSettings, batch: int | None) -> Path | None:
    """Returns the feeds of the settings, else the test data in a model's folder."""
    if settings.feeds or batch is not None or settings.dims or not source.is_dir():
        return settings.feeds
    return next(iter(sorted(source.glob("test_data_set_*"))), None)
