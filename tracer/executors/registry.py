"""Finds executors by name: each package of `tracer.executors` that has a module `executor`."""

import importlib
import importlib.util
import pkgutil
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields
from pathlib import Path
from typing import Any, cast

from tracer import executors
from tracer.errors import UsageError
from tracer.executors.protocol import (
    AlternatingExecutor,
    Executor,
    FrameworkExecutor,
    OptimizingExecutor,
    SteppingExecutor,
    TensorExecutor,
    TryingExecutor,
)
from tracer.interpreter.fallback import Fallback
from tracer.support.suggestions import suggest

REFERENCE, EMULATED = "reference", "emulated"
"""The executors of `tracer.interpret`, without and with narrow accumulators."""

SHORT_NAMES = {"ort": "onnxruntime", "openvino": "openvino", "interpreter": REFERENCE}
"""Names of executors in a comparison, as in `model.onnx@ort`."""


def names() -> list[str]:
    """Returns the names of all executors, with their packages installed or not."""
    packages = (m.name for m in pkgutil.iter_modules(executors.__path__) if m.ispkg)
    return sorted(p for p in packages if importlib.util.find_spec(f"tracer.executors.{p}.executor"))


def find(name: str) -> Executor[Any, Any, Any]:
    """Returns the executor of this name or short name. Raises UsageError for an unknown name."""
    name = SHORT_NAMES.get(name, name)
    if name not in names():
        hint = f"{suggest(name, names())}There are {', '.join(names())}."
        raise UsageError(f"there is no executor '{name}'", hint)
    module = importlib.import_module(f"tracer.executors.{name}.executor")
    return cast("Executor[Any, Any, Any]", module.executor)


def find_optimizing(name: str) -> OptimizingExecutor[Any, Any, Any]:
    """Returns the executor `name`. Raises UsageError where it does not optimise graphs."""
    return cast(
        "OptimizingExecutor[Any, Any, Any]", _able(name, OptimizingExecutor, "optimise graphs")
    )


def find_alternating(name: str) -> AlternatingExecutor[Any, Any, Any]:
    """Returns the executor `name`. Raises UsageError where its runs cannot take turns."""
    return cast(
        "AlternatingExecutor[Any, Any, Any]",
        _able(name, AlternatingExecutor, "take turns with others"),
    )


def find_tensors(name: str) -> TensorExecutor[Any, Any, Any]:
    """Returns the executor `name`. Raises UsageError where it cannot return tensors."""
    return cast(
        "TensorExecutor[Any, Any, Any]", _able(name, TensorExecutor, "return the tensors of nodes")
    )


def try_feeds(name: str, subject: Any, settings: Any) -> Callable[[Any], object] | None:
    """Returns a function that runs `subject` on feeds, opened once; None where `name` has none."""
    executor = find(name)
    if not isinstance(executor, TryingExecutor):
        return None
    return executor.try_feeds(subject, settings)


def find_stepping(name: str) -> SteppingExecutor[Any, Any, Any]:
    """Returns the executor `name`. Raises UsageError where it cannot feed a cache back."""
    return cast(
        "SteppingExecutor[Any, Any, Any]",
        _able(name, SteppingExecutor, "run the phases of a language model"),
    )


def find_fallback(name: str, register: Sequence[str | Path] = ()) -> Fallback:
    """Returns what computes single nodes of the interpreter, with libraries of operators.

    The class `fallback` of the executor makes it. Raises UsageError where there is none.
    """
    kind = getattr(find(name), "fallback", None)
    if kind is None:
        raise UsageError(f"the executor '{name}' does not compute single nodes", "Take ort.")
    return cast("Fallback", kind(register))


def find_framework(name: str) -> FrameworkExecutor[Any, Any, Any]:
    """Returns the executor of the framework `name`. Raises UsageError for one of graphs."""
    return cast(
        "FrameworkExecutor[Any, Any, Any]",
        _able(name, FrameworkExecutor, "run models of a framework"),
    )


def _able(name: str, protocol: Any, ability: str) -> Any:
    executor = find(name)
    if not isinstance(executor, protocol):
        raise UsageError(f"the executor '{name}' does not {ability}")
    return executor


def has_setting(name: str, setting: str) -> bool:
    """Returns whether the settings of the executor `name` have this field."""
    return any(field.name == setting for field in fields(find(name).settings))


def settings_for(name: str, values: Mapping[str, object]) -> Any:
    """Returns the settings of the executor `name`; a value None stands for its default.

    Raises UsageError for a value that the executor has no field for, or that it refuses.
    """
    kind = find(name).settings
    chosen = {field: value for field, value in values.items() if value is not None}
    unknown = chosen.keys() - {field.name for field in fields(kind)}
    if unknown:
        raise UsageError(
            f"the executor '{name}' has no setting {', '.join(sorted(unknown))}",
            f"Its settings are {', '.join(field.name for field in fields(kind))}.",
        )
    return kind(**chosen)
