"""How to run a model in its framework."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.errors import UsageError

LOSSES = ("sum", "cross-entropy")
OPTIMIZERS = ("sgd", "adam")
DEVICES = ("cpu", "cuda")
MOST_THREADS = 1024


@dataclass(frozen=True, slots=True)
class EagerSettings:
    """Settings of one profile; `threads` 0 is the framework's own choice.

    `runs` and `min_time` mean what they mean for onnxruntime: without `runs`, inferences are
    repeated until `min_time` seconds of them are measured, and at least ten times. With
    `backward` a run is a training step: forward, `loss` (`sum` unless given), backward, and the
    step of `optimizer` where one is given. `seed` is that of dropout and of random targets.
    """

    runs: int | None = None
    warmup: int = 5
    min_time: float | None = None
    threads: int = 0
    seed: int = 0
    device: str = "cpu"
    backward: bool = False
    loss: str | None = None
    optimizer: str | None = None

    def __post_init__(self) -> None:
        for name, least in (("runs", 1), ("warmup", 0), ("min_time", 0), ("threads", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} is {value}", f"It is at least {least}.")
        if self.threads > MOST_THREADS:
            raise UsageError(f"{self.threads} threads are too many", f"At most {MOST_THREADS}.")
        for name, known in (("loss", LOSSES), ("optimizer", OPTIMIZERS), ("device", DEVICES)):
            value = getattr(self, name)
            if value is not None and value not in known:
                raise UsageError(f"there is no {name} '{value}'", f"Give {' or '.join(known)}.")
        for name in ("loss", "optimizer"):
            if getattr(self, name) is not None and not self.backward:
                raise UsageError(f"{name} is for a training step", "Ask for the backward pass too.")
