"""How onnxruntime runs a model."""

from dataclasses import dataclass

from tracer.errors import UsageError
from tracer.executors.measuring import MeasuringSettings

OPTIMIZATIONS = ("none", "basic", "extended", "all")
_CPU = ("cpu", "cpuexecutionprovider")


def is_cpu(provider: str) -> bool:
    """Returns whether onnxruntime's provider of this name, short or long, is the CPU."""
    return provider.lower() in _CPU


@dataclass(frozen=True, slots=True)
class OrtSettings(MeasuringSettings):
    """Settings of one profile; by default onnxruntime uses a thread for each physical core."""

    optimization: str = "all"
    provider: str = "cpu"

    def __post_init__(self) -> None:
        """Raises UsageError for values out of range."""
        MeasuringSettings.__post_init__(self)  # super() does not work in a class with slots
        if self.optimization not in OPTIMIZATIONS:
            raise UsageError(
                f"there is no optimization '{self.optimization}'",
                f"The levels are {', '.join(OPTIMIZATIONS)}.",
            )
