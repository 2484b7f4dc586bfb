"""How to run a model under onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass

from tracer.errors import UsageError

MOST_THREADS = 1024
OPTIMIZATIONS = ("none", "basic", "extended", "all")
_CPU = ("cpu", "cpuexecutionprovider")


def is_cpu(provider: str) -> bool:
    """Whether onnxruntime's provider of this name, short or long, is the processor."""
    return provider.lower() in _CPU


@dataclass(frozen=True, slots=True)
class OrtSettings:
    """Settings of one profile; `threads` 0 is onnxruntime's own choice, the physical cores.

    Without `runs`, inferences are repeated until `min_time` seconds of them are measured, and at
    least ten times; with it, exactly so many are made, and more only if `min_time` asks for it.
    """

    runs: int | None = None
    warmup: int = 5
    min_time: float | None = None
    threads: int = 0
    optimization: str = "all"
    provider: str = "cpu"

    def __post_init__(self) -> None:
        if self.optimization not in OPTIMIZATIONS:
            raise UsageError(
                f"there is no optimization '{self.optimization}'",
                f"The levels are {', '.join(OPTIMIZATIONS)}.",
            )
        for name, least in (("runs", 1), ("warmup", 0), ("min_time", 0), ("threads", 0)):
            value = getattr(self, name)
            if value is not None and value < least:
                raise UsageError(f"{name} is {value}", f"It is at least {least}.")
        if self.threads > MOST_THREADS:
            raise UsageError(f"{self.threads} threads are too many", f"At most {MOST_THREADS}.")
