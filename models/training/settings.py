"""What a training run was asked to do; saved beside its results, so that it can be continued."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from models.families import FRAMEWORKS
from tracer.errors import InputError, UsageError


@dataclass(frozen=True, slots=True)
class Settings:
    """Everything that decides the numbers of a run.

    `input_shape` is (channels, height, width); `arguments` go to the model's class.
    """

    family: str
    framework: str
    data: str
    input_shape: tuple[int, int, int]
    epochs: int
    batch: int
    lr: float
    seed: int = 0
    arguments: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Plain values under the fields' names."""
        return asdict(self)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _whole(value: object, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_VALID: Mapping[str, Callable[[object], bool]] = {
    "family": _text,
    "framework": lambda value: value in FRAMEWORKS,
    "data": _text,
    "input_shape": lambda v: isinstance(v, list) and len(v) == 3 and all(map(_whole, v)),
    "epochs": _whole,
    "batch": _whole,
    "lr": lambda value: isinstance(value, (int, float)) and value > 0,
    "seed": lambda value: _whole(value, 0),
    "arguments": lambda value: isinstance(value, dict),
}


def continued(saved: Mapping[str, object], asked: Mapping[str, object], where: str) -> Settings:
    """Returns the settings of the run in `where`, with more epochs if more are `asked` for.

    `asked` holds what the user gave explicitly. Raises UsageError where it contradicts what was
    saved, for that would be another run, InputError where what was saved is no settings.
    """
    settings = _from_json(saved, where)
    other = {
        name: value
        for name, value in asked.items()
        if name != "epochs" and _plain(value) != _plain(saved[name])
    }
    if other:
        changes = "; ".join(f"{name} {saved[name]}, not {value}" for name, value in other.items())
        raise UsageError(f"{where}: the run was started with {changes}", "Leave these out.")
    return replace(settings, epochs=asked.get("epochs", settings.epochs))  # type: ignore[arg-type]


def _from_json(saved: Mapping[str, object], where: str) -> Settings:
    names = [f.name for f in fields(Settings)]
    wrong = [name for name in names if not _VALID[name](saved.get(name))]
    if wrong or set(saved) != set(names):
        what = ", ".join(wrong or sorted(set(saved) - set(names)))
        raise InputError(f"{where}: these are not settings of a run ({what})", "Start a new one.")
    shape: Any = saved["input_shape"]
    return Settings(**{**saved, "input_shape": tuple(shape)})  # type: ignore[arg-type]


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
