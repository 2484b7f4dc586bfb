"""How onnxruntime runs a model."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tracer.errors import UsageError
from tracer.executors.measuring import MeasuringSettings

OPTIMIZATIONS = ("none", "basic", "extended", "all")


@dataclass(frozen=True, slots=True)
class OrtSettings(MeasuringSettings):
    """Settings of one profile; by default onnxruntime uses a thread for each physical core.

    `provider` is the long or the short name of a provider; `provider_options` are its own, by name.
    """

    optimization: str = "all"
    provider: str = "cpu"
    provider_options: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        """Raises UsageError for values out of range."""
        MeasuringSettings.__post_init__(self)  # super() does not work in a class with slots
        if self.optimization not in OPTIMIZATIONS:
            raise UsageError(
                f"there is no optimization '{self.optimization}'",
                f"The levels are {', '.join(OPTIMIZATIONS)}.",
            )
