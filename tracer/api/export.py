"""Export a PyTorch or Chainer model to ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.api import _calls
from tracer.api._calls import Contained, contained
from tracer.support.arguments import FLAG, TEXT, instance, integer, maybe, option, part

if TYPE_CHECKING:
    from tracer.exporters.records import Exported, ExportOptions

_MODEL = "Model"


@dataclass(frozen=True)
class _Export:
    """The options of a command that are fields of ExportOptions, which imports numpy."""

    framework: str | None = _calls.framework(_MODEL)
    to: str | None = option(
        "Convert SOURCE, a quantised .onnx file: QuantizeLinear and DequantizeLinear to Quant "
        "(qonnx), or back (qdq).  [default: export a framework's model]",
        None, group=_calls.ONNX, rule=TEXT, reads=("choice", "qonnx", "qdq"),
    )  # fmt: skip
    opset: int | None = option(
        "Version of the ONNX operator set.  [default: 20 for torch, 11 for Chainer]", None,
        group=_calls.ONNX, rule=integer(1),
    )  # fmt: skip
    static_batch: bool = option(
        "Fix the batch size to that of the inputs.", False, group=_calls.ONNX, rule=FLAG
    )
    keep_batchnorm: bool = option(
        "Do not fold BatchNormalization into convolutions (torch).", False,
        group=_calls.ONNX, rule=FLAG,
    )  # fmt: skip
    rtol: float | None = _calls.rtol("1e-4, or 8 roundings of a narrower type")
    atol: float | None = _calls.atol("1e-8")
    force: bool = option("Overwrite files that exist.", False, group="Output")
    seed: int = option(
        "Seed of random weights, and of the inputs of the check.", 0, group="Output", shown=True
    )


def _export_options(static_batch: bool, **values: Any) -> ExportOptions:
    from tracer.exporters.records import ExportOptions

    return ExportOptions(dynamic_batch=not static_batch, **values)


@dataclass(frozen=True)
class ExportArguments(Contained):
    """The arguments of `export`."""

    GROUPS = (_MODEL, _calls.INPUT, _calls.ONNX, _calls.TOLERANCE, "Output")

    model: object
    path: str | Path = option("The .onnx file to write.", group="Output", flag="-o --output")
    _: KW_ONLY
    options: ExportOptions | None = part(
        _Export, None, build=_export_options,
        rule=maybe(instance("tracer.exporters.records.ExportOptions")),
    )  # fmt: skip
    args: Mapping[str, object] | None = _calls.args(_MODEL)
    weights: Path | None = _calls.weights(_MODEL)
    trust: bool = _calls.trust(_MODEL)
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = _calls.input_shape(
        "the model's", _calls.INPUT
    )
    input_dtype: str | Sequence[str] = _calls.input_dtype(_calls.INPUT)


@contained(ExportArguments)
def export(call: ExportArguments) -> Exported:
    """Writes `model` to `path` as ONNX and checks it against the framework on random inputs.

    `model` is a torch.nn.Module, a torch.export.ExportedProgram, a chainer.Link, or the name of
    one: `FILE.py:NAME`, `package.module:NAME` or `FILE.pt2`. The code of the named file is run.
    `args`, `weights` and `trust` apply to a named model (see `exporters.subject.load_source`), and
    its random weights are drawn from `options.seed`.
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

    return _export.export(call)
