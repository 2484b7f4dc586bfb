"""Exports a PyTorch or Chainer model to ONNX: see `tracer.export`."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from tracer.api._convert import convert
from tracer.errors import UsageError
from tracer.exporters import pipeline
from tracer.exporters.records import Exported, ExportOptions, inputs_of
from tracer.exporters.source import load_source
from tracer.exporters.writing import check_target


def export(
    model: object,
    path: Path,
    args: Mapping[str, object],
    weights: Path | None,
    trust: bool,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None,
    input_dtype: str | Sequence[str],
    options: ExportOptions | None,
) -> Exported:
    """Writes `model`, or the model that it names, to `path`."""
    options = options or ExportOptions()
    check_target(path, options.force)
    if options.to is not None:
        return convert(model, path, options)
    if isinstance(model, str):
        model = load_source(
            model, dict(args), weights=weights, framework=options.framework, trust=trust,
            seed=options.seed,
        )  # fmt: skip
    elif args or weights:
        raise UsageError("args and weights apply to a model that is named, as in FILE.py:NAME")
    return pipeline.export(model, path, inputs_of(model, input_shape, input_dtype), options)
