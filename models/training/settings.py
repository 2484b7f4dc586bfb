"""What a training run was asked to do; saved beside its results, so that it can be continued."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace

from tracer.errors import UsageError


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


def continued(saved: Mapping[str, object], asked: Mapping[str, object], where: str) -> Settings:
    """The settings of the run in `where`, with more epochs if more are `asked` for.

    `asked` holds what the user gave explicitly. Raises UsageError where it contradicts what was
    saved, for that would be another run, or where what was saved is no settings.
    """
    names = {f.name for f in fields(Settings)}
    if set(saved) != names:
        raise UsageError(f"{where}: these are not settings of a run", "Start a new one.")
    other = {
        name: value
        for name, value in asked.items()
        if name != "epochs" and _plain(value) != _plain(saved[name])
    }
    if other:
        changes = "; ".join(f"{name} {saved[name]}, not {value}" for name, value in other.items())
        raise UsageError(f"{where}: the run was started with {changes}", "Leave these out.")
    shape = saved["input_shape"]
    assert isinstance(shape, list)
    settings = Settings(**{**saved, "input_shape": tuple(shape)})  # type: ignore[arg-type]
    epochs = asked.get("epochs", settings.epochs)
    assert isinstance(epochs, int)
    return replace(settings, epochs=epochs)


def _plain(value: object) -> object:
    return list(value) if isinstance(value, tuple) else value
