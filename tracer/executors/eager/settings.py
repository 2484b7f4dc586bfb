"""How a framework runs a live model."""

from dataclasses import dataclass

from tracer.errors import UsageError
from tracer.executors.measuring import MeasuringSettings

LOSSES = ("sum", "cross-entropy")
OPTIMIZERS = ("sgd", "adam")
DEVICES = ("cpu", "cuda")


@dataclass(frozen=True, slots=True)
class EagerSettings(MeasuringSettings):
    """Settings of one profile.

    A run is an inference; with `train` the forward pass of a training step, in training mode and
    recorded for gradients; with `backward` a training step: forward pass, `loss` [default: sum],
    backward pass, and the step of `optimizer` if set. `seed` is for dropout and random targets.
    """

    seed: int = 0
    device: str = "cpu"
    backward: bool = False
    loss: str | None = None
    optimizer: str | None = None
    train: bool = False

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
