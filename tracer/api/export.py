"""Export a PyTorch or Chainer model to ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api._calls import by_rules as contained
from tracer.support.arguments import instance, maybe

if TYPE_CHECKING:
    from tracer.exporters.records import Exported, ExportOptions
    from tracer.limits import Limits

_RULES = {"options": maybe(instance("tracer.exporters.records.ExportOptions"))}


@contained(_RULES)
def export(
    model: object,
    path: str | Path,
    *,
    args: Mapping[str, object] | None = None,
    weights: Path | None = None,
    trust: bool = False,
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = None,
    input_dtype: str | Sequence[str] = "float32",
    options: ExportOptions | None = None,
    limits: Limits | None = None,
    in_process: bool = False,
) -> Exported:
    """Writes `model` to `path` as ONNX and checks it against the framework on random inputs.

    `model` is a torch.nn.Module, a torch.export.ExportedProgram, a chainer.Link, or the name of
    one: `FILE.py:NAME`, `package.module:NAME` or `FILE.pt2`. The code of the named file is run.
    `args`, `weights` and `trust` apply to a named model (see `exporters.source.load_source`), whose
    random weights are drawn from `options.seed`.
    `input_shape` has the batch first, as in (1, 3, 32, 32). Several inputs are a sequence of
    shapes; `input_dtype` may then name a type for each. The default is the model's attribute
    `input_shape`, without the batch.

    With `options.to`, `model` is a quantised ONNX model. It is written in QONNX ("qonnx") or with
    QuantizeLinear and DequantizeLinear ("qdq"); the error is the difference of the two models.

    A named model runs in a child process, within `seconds` and `process_bytes` of `limits`, or with
    `in_process` in this one. So does a copy of a live model, if it can be pickled.

    Raises UsageError or ModelError if the model cannot be exported, InputError if `path` exists or
    cannot be written, ThresholdError if onnxruntime and the framework disagree. Nothing is written
    in these cases. Weights of more than 1.5 GiB go to a file beside `path`.
    """
    from tracer.api import _export

    return _export.export(
        model, Path(path), args or {}, weights, trust, input_shape, input_dtype, options
    )
