"""The smallest proof of a fault: parts of a model with their real inputs, and shrunk models."""

from dataclasses import dataclass, field
from pathlib import Path


@dataclass(frozen=True, slots=True)
class Extracted:
    """What was extracted of a model with `nodes_before` nodes, and the files that were written.

    Of a fault, `data_bytes` are those of arrays without a formula in the `script`.
    """

    model: str
    nodes_before: int
    nodes: int
    paths: tuple[Path, ...]
    kind: str = ""
    expects: str = ""
    sees: str = ""
    data_bytes: int = 0
    runs: int = 0
    seconds: float = 0.0
    script: str = field(default="", repr=False)
    report: str = field(default="", repr=False)
    notes: tuple[str, ...] = ()
