"""How onnxruntime runs a model."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from tracer.errors import InputError, UsageError
from tracer.executors.settings import MeasuringSettings

OPTIMIZATIONS = ("none", "basic", "extended", "all")


@dataclass(frozen=True, slots=True)
class SessionSettings:
    """How a session runs a model, beside its threads and level; the defaults are onnxruntime's.

    Nodes that do not wait for each other run in `parallel`, on `inter_op_threads` (0: a thread for
    each core). `dims` fixes symbolic dimensions when the session opens. `entries` are further
    entries of the session's configuration. `disabled` are optimisers of graphs that are left out.
    Inputs and outputs are `bound` to memory that all runs share, instead of copied in each.
    `flushes_denormals` replaces numbers too small to be normal by 0.
    """

    parallel: bool = False
    inter_op_threads: int = 0
    memory_pattern: bool = True
    arena: bool = True
    dims: Mapping[str, int] = field(default_factory=dict)
    entries: Mapping[str, str] = field(default_factory=dict)
    disabled: tuple[str, ...] = ()
    bound: bool = False
    flushes_denormals: bool = False


@dataclass(frozen=True, slots=True)
class OrtSettings(MeasuringSettings):
    """Settings of one profile; by default onnxruntime uses a thread for each physical core.

    `provider` is the long or the short name of a provider; `provider_options` are its own, by name.
    `register` are libraries with operators of a user's own, whose code the sessions run.
    """

    optimization: str = "all"
    provider: str = "cpu"
    session: SessionSettings = SessionSettings()
    provider_options: Mapping[str, str] = field(default_factory=dict)
    register: Sequence[str | Path] = ()

    def __post_init__(self) -> None:
        """Raises UsageError for values out of range, InputError for a library that is no file."""
        MeasuringSettings.__post_init__(self)  # super() does not work in a class with slots
        if self.optimization not in OPTIMIZATIONS:
            raise UsageError(
                f"there is no optimization '{self.optimization}'",
                f"The levels are {', '.join(OPTIMIZATIONS)}.",
            )
        for library in self.register:
            if not Path(library).is_file():
                raise InputError(
                    f"{library}: no such file", "--register takes a library of custom operators."
                )
