"""The exporter of Chainer models; it imports Chainer when it converts one."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from tracer.exporters.chainer.compat import chainer_ready
from tracer.exporters.records import Arrays, Conversion, ExportOptions, InputSpec
from tracer.exporters.registry import inherits


class _Exporter:
    """See `tracer.exporters.records.Exporter`."""

    name = "chainer"

    def prepare(self) -> None:
        chainer_ready()

    def claims(self, model: object) -> bool:
        return inherits(model, "chainer", "Link")

    def convert(
        self, model: object, inputs: Sequence[InputSpec], options: ExportOptions
    ) -> Conversion:
        from tracer.exporters.chainer.conversion import convert

        return convert(model, inputs, options)

    def run(self, model: Any, arrays: Arrays) -> list[NDArray[Any]]:
        from tracer.exporters.chainer.trace import run

        return run(model, arrays)

    def load_weights(self, model: object, path: Path, *, trust: bool) -> None:
        from tracer.exporters.chainer.weights import load_weights

        load_weights(model, path, trust=trust)


exporter = _Exporter()
