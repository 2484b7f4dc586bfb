"""The exporter of PyTorch models; it imports torch when it converts one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tracer.exporters.records import Arrays, Conversion, ExportOptions, InputSpec, inherits


class _Exporter:
    """See `tracer.exporters.records.Exporter`."""

    name = "torch"

    def prepare(self) -> None:
        """Does nothing: torch needs no preparation."""

    def claims(self, model: object) -> bool:
        return inherits(model, "torch", "Module") or inherits(model, "torch", "ExportedProgram")

    def convert(
        self, model: Any, inputs: Sequence[InputSpec], options: ExportOptions
    ) -> Conversion:
        from tracer.exporters.torch.conversion import convert

        return convert(model, inputs, options)

    def run(self, model: Any, arrays: Arrays) -> list[NDArray[Any]]:
        from tracer.exporters.torch.conversion import run

        return run(model, arrays)

    def load_weights(self, model: Any, path: Path, *, trust: bool) -> None:
        from tracer.exporters.torch.archive import load_weights

        load_weights(model, path, trust=trust)


exporter = _Exporter()
