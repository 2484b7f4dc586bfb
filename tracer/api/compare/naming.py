"""What a user names as sides of a comparison.

`run.trace` is a saved recording. `model.onnx`, `model.onnx@ort:basic`, `model.onnx@ort:openvino`,
`model.onnx@ort==1.20.1:basic` in that release, `model.onnx@interpreter` and `FILE.py:NAME`, a
framework's own model, are run now; `FILE.py:NAME@torch:cuda` runs on a card, `@torch==2.12.1` in
that release, and `FILE.py:NAME@ort` is its export.

In Python a side may also be a Trace, an onnx.ModelProto, a Model or a Code; a model in memory is
called by the name of its graph.

ONNX models declare their inputs, and feed themselves. A module of a framework declares none: it
runs on the arrays of the first ONNX model, by position. The values of all sides are compared on
these.
"""

import importlib.util
import re
from collections.abc import Mapping, Sequence
from dataclasses import fields, replace
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tracer.api.compare import SideSettings
from tracer.api.compare.sides import (
    DEFAULT,
    LEVEL,
    FrameworkSide,
    LiveSide,
    NamedSide,
    OnnxSide,
    Recorded,
)
from tracer.errors import InputError, UsageError, locate_errors
from tracer.executors import registry
from tracer.executors.releases import PACKAGES, Release
from tracer.executors.settings import DEVICES
from tracer.exporters import frameworks, subject
from tracer.exporters.records import draw, exporter_of, input_specs
from tracer.graph.model import Model
from tracer.inputs.feedset import npz_members, read_arrays
from tracer.records import environment
from tracer.records.trace import Trace
from tracer.storage import trace_file
from tracer.support.arguments import flag_of
from tracer.support.imports import not_installed
from tracer.text import plural, suggest

_DEFAULT = SideSettings()
_FORMS = (
    "A side is FILE.trace, FILE.onnx, FILE.onnx@ort, @ort:none … @ort:all, @ort:PROVIDER, "
    "@ort==1.20.1, @openvino or @interpreter, or FILE.py:NAME, FILE.py:NAME@torch, @torch:cuda, "
    "@torch==2.12.1 or @chainer."
)

Arrays: TypeAlias = Sequence[NDArray[Any]]
"""An array for each input of a model, by position."""


def named_sides(
    sides: "Sequence[subject.ModelSource | Trace]", settings: SideSettings
) -> list[NamedSide]:
    """Returns the sides, which are traces, models or named by texts, with short labels.

    A model that is exported gets the inputs that the settings describe, else those of the first
    ONNX file, as far as its sizes are not guessed, else its own. Raises the errors of `parse`.
    """
    keys = [str(side) if isinstance(side, str | Path) else id(side) for side in sides]
    subjects = dict(zip(keys, sides, strict=True))
    exported = [str(key) for key in subjects if _is_exported(key)]
    named = {k: open_side(side, settings) for k, side in subjects.items() if not _is_exported(k)}
    models = [side for side in named.values() if isinstance(side, OnnxSide)]
    if exported and models and settings.input_shape is None:
        feedset = models[0].request(settings).feeds()
        arrays = list(feedset.feeds.values())
        if not feedset.chosen and all(isinstance(array, np.ndarray) for array in arrays):
            shapes, dtypes = zip(*((a.shape, a.dtype.name) for a in arrays), strict=True)
            settings = replace(settings, input_shape=shapes, input_dtype=dtypes)
    named |= {text: parse(text, settings) for text in exported}
    return with_short_labels([named[key] for key in keys])


def open_side(side: "subject.ModelSource | Trace", settings: SideSettings) -> NamedSide:
    """Returns the side that a model, a trace or a text is. Raises the errors of `parse`."""
    if isinstance(side, str | Path):
        return parse(str(side), settings)
    if isinstance(side, Trace):
        return Recorded(side.model.name, side)
    model = subject.open_subject(side)
    label = model.name if model.path or model.subject else model.proto.graph.name
    return OnnxSide(label, subject.runnable_form(model), Path(model.name))


def _is_exported(key: str | int) -> bool:
    """Whether a side, if it is a text, is code of a framework that runs as ONNX."""
    name, executor = _split_executor(str(key))
    if re.split("==|:", executor)[0] in frameworks() or not subject.names_code(name):
        return False
    return bool(executor) or not subject.runs_in_framework(name)


def _split_executor(text: str) -> tuple[str, str]:
    """Returns the model of a side and its executor, which may be empty."""
    name, at, executor = text.rpartition("@")
    return (text, "") if not at or Path(text).exists() else (name, executor)


def parse(text: str, settings: SideSettings = _DEFAULT) -> NamedSide:
    """Returns the side that `text` names.

    Raises UsageError or InputError if there is none, and for code the errors of
    `exporters.subject`.
    """
    name, executor = _split_executor(text)
    if executor == "" and Path(name).suffix == ".trace":
        return Recorded(text, trace_file.load(name))
    if executor == "" and subject.runs_in_framework(name):
        executor = _framework_of(name, settings)
    engine, _, how = executor.partition(":")
    engine, pinned, version = engine.partition("==")
    if pinned and engine not in PACKAGES:
        hint = "These do: ort==1.20.1, openvino==2026.4.1, torch==2.12.1."
        raise UsageError(f"{text}: '{engine}' takes no release", hint)
    if engine in frameworks():
        if importlib.util.find_spec(engine) is None:
            raise not_installed(text, ModuleNotFoundError(name=engine))
        if how and how not in DEVICES:
            hint = f"{suggest(how, DEVICES)}The devices are {', '.join(DEVICES)}."
            raise UsageError(f"{text}: there is no device '{how}'", hint)
        release = Release(version, PACKAGES[engine]) if pinned else None
        return FrameworkSide(text, name, engine, device=how or None, release=release)
    if engine not in ("", *registry.SHORT_NAMES) or (
        how and not (engine and registry.has_setting(engine, LEVEL))
    ):
        near = suggest(executor, (*registry.SHORT_NAMES, *frameworks()))
        raise UsageError(f"{text}: there is no executor '{executor}'", f"{near}{_FORMS}")
    # `basic`, `openvino` or `openvino:basic`: what is no provider is taken for a level.
    word, _, rest = how.partition(":")
    provider = word if environment.is_named(word) else None
    level = (rest if provider else how) or None
    with locate_errors(text):
        registry.settings_for(engine or DEFAULT, {LEVEL: level})
    if not name or not (Path(name).exists() or subject.names_code(name)):
        raise InputError(f"{name or repr(text)}: no such file", _FORMS)
    model = _export(name, settings) if subject.names_code(name) else subject.open_subject(name)
    if registry.SHORT_NAMES[engine or DEFAULT] != registry.REFERENCE:
        model = subject.runnable_form(model)
    release = Release(version, PACKAGES[engine]) if pinned else None
    return OnnxSide(text, model, Path(name), engine or DEFAULT, level, provider, release=release)


def _export(name: str, settings: SideSettings) -> Model:
    with locate_errors(name, once=True):
        weights = settings.weights
        if isinstance(weights, Mapping):  # the framework of an export chooses among several
            weights = settings.weights_of(_framework_of(name, settings))
        shapes, dtype = settings.shapes(None), settings.input_dtype
        return subject.open_subject(subject.Code(name, shapes, dtype, settings.args, weights))


def _framework_of(name: str, settings: SideSettings) -> str:
    return exporter_of(subject.load_source(name, settings.args, seed=settings.seed)).name


def refuse_unused(sides: Sequence[NamedSide], settings: SideSettings) -> None:
    """Raises UsageError for settings that no side uses."""
    used = {"batch"}.union(*(side.uses for side in sides))
    unused = [
        flag_of(each)
        for each in fields(SideSettings)
        if each.name not in used and getattr(settings, each.name) != getattr(_DEFAULT, each.name)
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


def at_each_threads(sides: Sequence[NamedSide], threads: Sequence[int]) -> list[NamedSide]:
    """Returns each side at each number of threads, which its label names.

    Raises UsageError for sides that are not run now, and for models of a framework, whose threads
    belong to the whole process: they cannot differ between sides that take turns.
    """
    other = next((side for side in sides if not isinstance(side, OnnxSide)), None)
    if other is not None:
        raise UsageError(
            f"{other.label}: {other.kind} are not compared at several numbers of threads",
            "Name ONNX models, or one number of threads.",
        )
    return [
        replace(side, label=f"{side.label} ({plural(count, 'thread')})", threads=count)
        for side in sides
        if isinstance(side, OnnxSide)
        for count in dict.fromkeys(threads)
    ]


def shared_inputs(sides: Sequence[NamedSide], settings: SideSettings) -> Arrays | None:
    """Returns the inputs of the first ONNX model, else those that the settings describe.

    None leaves each module its own `input_shape`. Raises UsageError for settings that contradict
    each other, and the errors of `tracer.inputs.request`.
    """
    if settings.input_shape is not None and (settings.inputs or settings.dims):
        other = "--inputs" if settings.inputs else "--dim"
        raise UsageError(f"--input-shape and {other} both set sizes", "Give one of them.")
    models = [side for side in sides if isinstance(side, OnnxSide)]
    if settings.input_dtype != _DEFAULT.input_dtype:
        for side in models:
            if not side.is_exported:
                raise UsageError(
                    f"--input-dtype would do nothing: {side.label} declares the types of its "
                    "inputs",
                    "Leave it out.",
                )
    if models:
        return list(models[0].feeds_that_run(settings).feeds.values())
    if all(isinstance(side, Recorded) for side in sides):
        return None
    if settings.inputs is not None:
        return list(read_arrays(settings.inputs).values())
    if settings.input_shape is None:
        return None
    specs = input_specs(settings.shapes(settings.batch), settings.input_dtype)
    for spec in specs:
        spec.check()
    return draw(specs, settings.seed)


def with_own_inputs(
    sides: Sequence[NamedSide], settings: SideSettings, folder: Path
) -> tuple[list[NamedSide], tuple[str, ...]]:
    """Returns the sides, each ONNX model with the arrays of the file that it takes, and notes.

    The file of the settings may hold arrays that some of the models do not take; what each takes is
    written to `folder`. An array that none takes is left to the check of the first model.
    """
    models = [side for side in sides if isinstance(side, OnnxSide)]
    if settings.inputs is None or settings.inputs.suffix != ".npz" or not models:
        return list(sides), ()
    given = list(npz_members(settings.inputs))
    declared = {value.name for side in models for value in side.model.inputs}
    if not declared.issuperset(given):
        return list(sides), ()
    with_inputs, notes = list[NamedSide](), list[str]()
    for side in sides:
        own = {value.name for value in side.model.inputs} if isinstance(side, OnnxSide) else set()
        if not isinstance(side, OnnxSide) or own.issuperset(given):
            with_inputs.append(side)
            continue
        arrays = {n: a for n, a in read_arrays(settings.inputs).items() if n in own}
        path = folder / f"{len(with_inputs)}.npz"
        np.savez(path, allow_pickle=False, **arrays)
        with_inputs.append(replace(side, feeds=path))
        left = ", ".join(name for name in given if name not in arrays)
        notes.append(f"{side.label} has no input {left}, which is left out there")
    return with_inputs, tuple(notes)


def live_sides(sides: Sequence[NamedSide], arrays: Arrays | None) -> list[LiveSide]:
    """Returns the sides that are run now; modules of a framework run on `arrays`."""
    return [
        replace(side, arrays=arrays) if isinstance(side, FrameworkSide) else side
        for side in sides
        if not isinstance(side, Recorded)
    ]
