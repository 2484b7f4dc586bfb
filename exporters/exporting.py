"""Export of one model: checks the target, converts, compares with the framework, writes."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from exporters.pipeline import converted
from exporters.records import Exported, ExportOptions, InputSpec
from exporters.registry import exporter_of
from exporters.writing import check_target, write
from tracer.errors import UsageError


def export(
    model: object,
    path: str | Path,
    *,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None,
    input_dtype: str | Sequence[str] = "float32",
    options: ExportOptions = ExportOptions(),  # noqa: B008 - frozen, so one for all is right
) -> Exported:
    """Write `model` to `path` as ONNX, checked against the framework on random inputs.

    `model` is a torch.nn.Module, a torch.export.ExportedProgram (which knows its shapes) or a
    chainer.Link. `input_shape` has the batch first, as in (1, 3, 32, 32); several inputs are a
    sequence of shapes, and then `input_dtype` may be one name for each.

    Raises UsageError or ModelError where the model cannot be exported or `path` does not end in
    .onnx, InputError where `path` exists or cannot be written, LimitError for more than 2 GB,
    ThresholdError where onnxruntime and the framework disagree; in each case nothing is written.
    """
    path = Path(path)
    check_target(path, options.force)
    exporter = exporter_of(model, options.framework)
    inputs = input_specs(input_shape, input_dtype)
    proto, exported = converted(exporter, model, inputs, options, path)
    write(proto, path)
    return exported


def input_specs(shapes: Any, dtypes: str | Sequence[str]) -> tuple[InputSpec, ...]:
    """A record for each input of one shape or a sequence of them; none for None.

    Raises UsageError where there are not as many types as shapes, or one.
    """
    if shapes is None:
        return ()
    if all(isinstance(size, int) for size in shapes):
        shapes = [shapes]
    names = [dtypes] * len(shapes) if isinstance(dtypes, str) else list(dtypes)
    if len(names) != len(shapes):
        raise UsageError(
            f"{len(names)} element types for {len(shapes)} inputs", "Give one, or one for each."
        )
    return tuple(InputSpec(tuple(s), n) for s, n in zip(shapes, names, strict=True))
