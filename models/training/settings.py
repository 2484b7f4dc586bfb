"""The settings of a training run, saved with its results for `--resume`."""

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from typing import Any

from models.families import FRAMEWORKS
from models.training.learner import DEVICES
from tracer.errors import InputError, UsageError


@dataclass(frozen=True, slots=True)
class TrainSettings:
    """The settings that determine the results of a run.

    `input_shape` is (channels, height, width), or (bytes,) of a text; `arguments` go to the model's
    class. Runs of older versions have no `device`, and were on the CPU.
    """

    family: str
    framework: str
    data: str
    input_shape: tuple[int, ...]
    epochs: int
    batch: int
    lr: float
    seed: int = 0
    device: str = "cpu"
    arguments: Mapping[str, object] = field(default_factory=dict)

    def to_json(self) -> dict[str, object]:
        """Returns plain values by field name."""
        return asdict(self)


def _text(value: object) -> bool:
    return isinstance(value, str)


def _whole(value: object, least: int = 1) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= least


_VALID: Mapping[str, Callable[[object], bool]] = {
    "family": _text,
    "framework": lambda value: value in FRAMEWORKS,
    "data": _text,
    "input_shape": lambda v: isinstance(v, list) and len(v) in (1, 3) and all(map(_whole, v)),
    "epochs": _whole,
    "batch": _whole,
    "lr": lambda value: isinstance(value, (int, float)) and value > 0,
    "seed": lambda value: _whole(value, 0),
    "device": lambda value: value in DEVICES,
    "arguments": lambda value: isinstance(value, dict),
}


def continued(
    saved: Mapping[str, object], request: Mapping[str, object], where: str
) -> TrainSettings:
    """Returns the settings of the run in `where`, with the epochs of `request` if it has them.

    `request` has the explicit options. Raises UsageError if it contradicts the saved settings,
    InputError if the saved settings are invalid.
    """
    saved = {"device": "cpu", **saved}
    settings = _from_json(saved, where)
    other = {
        name: value
        for name, value in request.items()
        if name != "epochs" and _plain(value) != _plain(saved[name])
    }
    if other:
        changes = "; ".join(f"{name} {saved[name]}, not {value}" for name, value in other.items())
        raise UsageError(f"{where}: the run was started with {changes}", "Leave these out.")
    return replace(settings, epochs=request.get("epochs", settings.epochs))


def _from_json(saved: Mapping[str, object], where: str) -> TrainSettings:
    names = [f.name for f in fields(TrainSettings)]
    wrong = [name for name in names if not _VALID[name](saved.get(name))]
    if wrong or set(saved) != set(names):
        names_text = ", ".join(wrong or sorted(set(saved) - set(names)))
        raise InputError(
            f"{where}: these are not settings of a run ({names_text})", "Start a new one."
        )
    shape: Any = saved["input_shape"]
    return TrainSettings(**{**saved, "input_shape": tuple(shape)})


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
