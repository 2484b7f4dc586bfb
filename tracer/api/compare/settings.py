"""How the sides of a comparison are run."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

from tracer.support.arguments import PATH, RULES, check_arguments, either, mapping, maybe

_RULES = {"arguments": RULES["args"], "weights": maybe(either(PATH, mapping(PATH)))}


@dataclass(frozen=True, slots=True)
class SideSettings:
    """How sides that are run now are run; the names are those of `tracer.profile`.

    `weights` is a file for all models of frameworks, or a file for each framework by name.
    `provider_options` are those of the sides on another provider of onnxruntime than the CPU.
    `register` are libraries of custom operators for onnxruntime. `input_shape` also sets the open
    dimensions of ONNX models. Layers take turns in `sessions` of each side. So do whole runs of
    several sides, in more sessions until the interval of their ratio is no wider than `precision`,
    a share, either way.
    """

    batch: int | None = None
    dims: Mapping[str, int] = field(default_factory=dict)
    feeds: Path | None = None
    seed: int = 0
    threads: int = 0
    optimization: str = "all"
    arguments: Mapping[str, Any] = field(default_factory=dict)
    weights: Path | Mapping[str, Path] | None = None
    train: bool = False
    backward: bool = False
    device: str = "cpu"
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None
    input_dtype: str | Sequence[str] = "float32"
    provider_options: Mapping[str, str] = field(default_factory=dict)
    register: Sequence[str | Path] = ()
    precision: float = 0.01
    sessions: int = 24

    def __post_init__(self) -> None:
        """Raises UsageError for a value that is not allowed."""
        check_arguments({each.name: getattr(self, each.name) for each in fields(self)}, _RULES)

    def shapes(self, batch: int | None) -> list[tuple[int, ...]] | None:
        """Returns the shapes of `input_shape`, at another batch if there is one."""
        if self.input_shape is None:
            return None
        from tracer.exporters.records import input_specs

        specs = input_specs(self.input_shape, "float32")
        return [(spec if batch is None else spec.with_batch(batch)).shape for spec in specs]

    def weights_of(self, framework: str) -> Path | None:
        """Returns the file of weights for models of this framework."""
        if isinstance(self.weights, Mapping):
            return self.weights.get(framework)
        return self.weights
