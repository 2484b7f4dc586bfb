"""How to run a model under onnxruntime."""

from __future__ import annotations

from dataclasses import dataclass

OPTIMIZATIONS = ("none", "basic", "extended", "all")


@dataclass(frozen=True, slots=True)
class Options:
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
