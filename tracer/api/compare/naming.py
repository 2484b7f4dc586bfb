"""What a user names as sides of a comparison.

`run.trace` is a saved recording. `model.onnx`, `model.onnx@ort:basic`, `model.onnx@ort:openvino`,
`model.onnx@interpreter` and `FILE.py:NAME`, a framework's own model, are run now;
`FILE.py:NAME@ort` is its export.
"""

import importlib.util
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np

from tracer.api.compare.settings import SideSettings
from tracer.api.compare.sides import (
    DEFAULT,
    LEVEL,
    FrameworkSide,
    NamedSide,
    OnnxSide,
    Recorded,
    naming_errors,
)
from tracer.errors import InputError, UsageError
from tracer.executors import registry
from tracer.exporters.frameworks import frameworks
from tracer.exporters.registry import exporter_of
from tracer.exporters.source import load_source, names_code, runs_in_framework
from tracer.exporters.subject import Code, open_subject
from tracer.graph.model import Model
from tracer.quantization.stand_in import for_onnxruntime
from tracer.records import providers
from tracer.storage import trace_file
from tracer.support.imports import not_installed

_DEFAULT = SideSettings()
_FORMS = (
    "A side is FILE.trace, FILE.onnx, FILE.onnx@ort, @ort:none … @ort:all, @ort:PROVIDER or "
    "@interpreter, or FILE.py:NAME, FILE.py:NAME@torch or @chainer."
)

_FLAGS = {
    "dims": "--dim", "feeds": "--inputs", "seed": "--seed",
    "threads": "--threads", "optimization": "--optimization", "arguments": "--arg",
    "weights": "--weights", "train": "--train", "backward": "--backward", "device": "--device",
    "input_shape": "--input-shape", "input_dtype": "--input-dtype", "precision": "--precision",
    "sessions": "--sessions", "provider_options": "--provider-option",
    "register": "--register",
}  # fmt: skip
"""Options of the settings that some kinds of sides do not use."""


def named_sides(texts: Sequence[str], settings: SideSettings) -> list[NamedSide]:
    """Returns the sides that `texts` name, with short labels.

    A model that is exported gets the inputs that the settings describe, else those of the first
    ONNX file, as far as its sizes are not guessed, else its own. Raises the errors of `parse`.
    """
    sides = {text: parse(text, settings) for text in texts if not _is_exported(text)}
    files = [side for side in sides.values() if isinstance(side, OnnxSide)]
    exported = [text for text in texts if _is_exported(text)]
    if exported and files and settings.input_shape is None:
        settings = _with_inputs_of(files[0], settings)
    sides |= {text: parse(text, settings) for text in exported}
    return with_short_labels([sides[text] for text in texts])


def _is_exported(text: str) -> bool:
    """Whether a side is code of a framework that runs as ONNX."""
    name, executor = _divided(text)
    if executor in frameworks() or not names_code(name):
        return False
    return bool(executor) or not runs_in_framework(name)


def _with_inputs_of(side: OnnxSide, settings: SideSettings) -> SideSettings:
    """Returns settings with the shapes and types of the inputs of `side`, unless guessed."""
    feedset = side.request(settings).feeds()
    arrays = list(feedset.feeds.values())
    if feedset.chosen or not all(isinstance(array, np.ndarray) for array in arrays):
        return settings
    shapes, dtypes = zip(*((array.shape, array.dtype.name) for array in arrays), strict=True)
    return replace(settings, input_shape=shapes, input_dtype=dtypes)


def _divided(text: str) -> tuple[str, str]:
    """Returns the model of a side and its executor, which may be empty."""
    name, at, executor = text.rpartition("@")
    return (text, "") if not at or Path(text).exists() else (name, executor)


def parse(text: str, settings: SideSettings = _DEFAULT) -> NamedSide:
    """Returns the side that `text` names.

    Raises UsageError or InputError if there is none, and for code the errors of `load_source` and
    `open_subject`.
    """
    name, executor = _divided(text)
    if executor == "" and Path(name).suffix == ".trace":
        return Recorded(text, trace_file.load(name))
    if executor == "" and runs_in_framework(name):
        executor = _framework_of(name, settings)
    if executor in frameworks():
        if importlib.util.find_spec(executor) is None:
            raise not_installed(text, ModuleNotFoundError(name=executor))
        return FrameworkSide(text, name, executor)
    engine, _, how = executor.partition(":")
    if engine not in ("", *registry.SHORT_NAMES) or (
        how and not (engine and registry.has_setting(engine, LEVEL))
    ):
        raise UsageError(f"{text}: there is no executor '{executor}'", _FORMS)
    level, provider = _settings_of(how)
    try:
        registry.settings_for(engine or DEFAULT, {LEVEL: level})
    except UsageError as error:
        raise UsageError(f"{text}: {error.what}", error.hint) from error
    if not name or not (Path(name).exists() or names_code(name)):
        raise InputError(f"{name or repr(text)}: no such file", _FORMS)
    model = _opened(name, settings)
    if registry.SHORT_NAMES[engine or DEFAULT] != registry.REFERENCE:
        model = for_onnxruntime(model)
    return OnnxSide(text, model, Path(name), engine or DEFAULT, level, provider)


def _settings_of(text: str) -> tuple[str | None, str | None]:
    """Returns the optimisation level and the provider in `basic`, `openvino` or `openvino:basic`.

    Anything that is no provider is taken for a level.
    """
    word, _, rest = text.partition(":")
    if providers.is_named(word):
        return rest or None, word
    return text or None, None


def _opened(name: str, settings: SideSettings) -> Model:
    if not names_code(name):
        return open_subject(name)
    with naming_errors(name):
        code = Code(
            name, settings.shapes(None), settings.input_dtype, settings.arguments,
            _weights_of(name, settings),
        )  # fmt: skip
        return open_subject(code)


def _weights_of(name: str, settings: SideSettings) -> Path | None:
    """Returns the file of weights of an export; its framework chooses among several."""
    if not isinstance(settings.weights, Mapping):
        return settings.weights
    return settings.weights_of(_framework_of(name, settings))


def _framework_of(name: str, settings: SideSettings) -> str:
    return exporter_of(load_source(name, settings.arguments, seed=settings.seed)).name


def refuse_unused(sides: Sequence[NamedSide], settings: SideSettings) -> None:
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
        exports = (side for side in sides if isinstance(side, OnnxSide) and side.is_exported)
        taken |= {_framework_of(str(side.source), settings) for side in exports}
        unused += [f"--weights {name}=…" for name in settings.weights if name not in taken]
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
