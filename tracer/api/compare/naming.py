"""What a user names as sides of a comparison.

`run.trace` is a saved recording. `model.onnx`, `model.onnx@ort:basic`, `model.onnx@interpreter` and
`FILE.py:NAME@torch`, a framework's own model, are run now; `FILE.py:NAME@ort` is its export.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from exporters.frameworks import frameworks
from exporters.source import names_code, runs_in_framework
from exporters.subject import open_subject
from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import (
    DEFAULT,
    LEVEL,
    FrameworkSide,
    NamedSide,
    OnnxSide,
    Recorded,
)
from tracer.errors import InputError, UsageError
from tracer.executors import registry
from tracer.storage import trace_file
from tracer.support.optional import not_installed

_FORMS = (
    "A side is FILE.trace, FILE.onnx, FILE.onnx@ort, @ort:none … @ort:all or @interpreter, "
    "or FILE.py:NAME@torch or @chainer."
)

_FLAGS = {
    "dims": "--dim", "feeds": "--inputs", "seed": "--seed", "warmup": "--warmup",
    "threads": "--threads", "optimization": "--optimization", "arguments": "--arg",
    "weights": "--weights", "train": "--train", "backward": "--backward", "device": "--device",
    "input_shape": "--input-shape", "input_dtype": "--input-dtype",
}  # fmt: skip
"""Options of the settings that some kinds of sides do not use."""


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
    if executor == "" and runs_in_framework(name):
        choices = " or ".join(f"@{framework}" for framework in frameworks())
        raise UsageError(
            f"{text}: no framework is named", f"Add {choices}, or @ort for its export to ONNX."
        )
    engine, _, level = executor.partition(":")
    if engine not in ("", *registry.SHORT_NAMES) or (
        level and not (engine and registry.has_setting(engine, LEVEL))
    ):
        raise UsageError(f"{text}: there is no executor '{executor}'", _FORMS)
    try:
        registry.settings_for(engine or DEFAULT, {LEVEL: level or None})
    except UsageError as error:
        raise UsageError(f"{text}: {error.what}", error.hint) from error
    if not name or not (Path(name).exists() or names_code(name)):
        raise InputError(f"{name or repr(text)}: no such file", _FORMS)
    return OnnxSide(text, open_subject(name), Path(name), engine or DEFAULT, level or None)


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
    if isinstance(settings.weights, Mapping):
        taken = {side.framework for side in sides if isinstance(side, FrameworkSide)}
        unused += [f"--weights {name}=…" for name in settings.weights if name not in taken]
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
