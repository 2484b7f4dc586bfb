"""Export a PyTorch or Chainer model to ONNX."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import KW_ONLY, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tracer.api import _calls
from tracer.errors import ModelError, UsageError, refusing
from tracer.support.arguments import FLAG, TEXT, instance, integer, maybe, option, part
from tracer.text import plural

if TYPE_CHECKING:
    import onnx

    from tracer.exporters.records import Exported, ExportOptions
    from tracer.graph.model import Model

_MODEL = "Model"


@dataclass(frozen=True)
class _Export:
    """The options of a command that are fields of ExportOptions, which imports numpy."""

    framework: str | None = _calls.framework(group=_MODEL, common=True)
    to: str | None = option(
        "Convert SOURCE, a quantised .onnx file: QuantizeLinear and DequantizeLinear to Quant "
        "(qonnx), or back (qdq).  [default: export a framework's model]",
        None, group=_calls.ONNX, rule=TEXT, reads=("choice", "qonnx", "qdq"), common=True,
    )  # fmt: skip
    opset: int | None = option(
        "Version of the ONNX operator set.  [default: 20 for torch, 11 for Chainer]", None,
        group=_calls.ONNX, rule=integer(1), common=True,
    )  # fmt: skip
    static_batch: bool = option(
        "Fix the batch size to that of the inputs.", False, group=_calls.ONNX, rule=FLAG,
        python="dynamic_batch=False",
    )  # fmt: skip
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
class ExportArguments(_calls.Contained):
    """The arguments of `export`."""

    GROUPS = (_MODEL, _calls.INPUT, _calls.ONNX, _calls.TOLERANCE, "Output")

    model: object
    path: str | Path = option(
        "The .onnx file to write.", group="Output", flag="-o --output", common=True
    )
    _: KW_ONLY
    options: ExportOptions | None = part(
        _Export, None, build=_export_options,
        rule=maybe(instance("tracer.exporters.records.ExportOptions")),
    )  # fmt: skip
    args: Mapping[str, object] | None = _calls.args(group=_MODEL, common=True)
    weights: Path | None = _calls.weights(group=_MODEL, common=True)
    trust: bool = _calls.trust(group=_MODEL)
    input_shape: Sequence[int] | Sequence[Sequence[int]] | None = _calls.input_shape(
        "the model's", _calls.INPUT
    )
    input_dtype: str | Sequence[str] = _calls.input_dtype(group=_calls.INPUT)


@_calls.contained(ExportArguments)
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

    >>> import tracer
    >>> exported = tracer.export("models/lenet/torch_net.py:LeNet", "net.onnx")
    >>> exported.nodes, exported.framework
    (12, 'torch')
    """
    from tracer.exporters import pipeline
    from tracer.exporters.records import ExportOptions, inputs_of
    from tracer.exporters.subject import load_source
    from tracer.exporters.writing import check_target

    options, path, model = call.options or ExportOptions(), Path(call.path), call.model
    check_target(path, options.force)
    if options.to is not None:
        kept = replace(ExportOptions(), to=options.to, seed=options.seed, force=options.force)
        of_code = (
            call.args, call.weights, call.trust, call.input_shape, call.input_dtype != "float32",
        )  # fmt: skip
        if options != kept or any(of_code):
            raise UsageError(
                "--to converts an ONNX model, and reads no option of a framework's",
                "Leave out all but --to, --seed and --force.",
            )
        return _convert(model, path, options)
    model = load_source(
        model, call.args, weights=call.weights, framework=options.framework, trust=call.trust,
        seed=options.seed,
    )  # fmt: skip
    inputs = inputs_of(model, call.input_shape, call.input_dtype)
    return pipeline.export(model, path, inputs, options)


def _convert(model: object, path: Path, options: ExportOptions) -> Exported:
    """Writes a quantised `model` to `path` in the format `options.to`, compared on random inputs.

    Raises UsageError for a model of a framework and for another format.
    """
    import onnx

    from tracer.exporters.records import Exported
    from tracer.exporters.subject import names_code
    from tracer.exporters.writing import notes, write_last
    from tracer.graph import loading, stored_weights
    from tracer.graph.model import Model

    if isinstance(model, str) and names_code(model):
        raise UsageError(
            f"{model} is a model of a framework, which is exported in floats",
            "Export it, quantise it with `tracer quantize`, then convert the .onnx file.",
        )
    conversion = _CONVERSIONS.get(options.to or "")
    if conversion is None:
        raise UsageError(f"no format '{options.to}'", f"Formats are {', '.join(_CONVERSIONS)}.")
    if not isinstance(model, str | Path | onnx.ModelProto | Model):
        raise UsageError(
            f"model is a {type(model).__name__}, which is exported in floats",
            "Give a path, an onnx.ModelProto or a tracer Model.",
        )
    opened = loading.open_model(model)
    with refusing(lambda why: ModelError(f"{opened.name}: cannot be converted ({why})")):
        proto = stored_weights.with_inline_weights(opened.proto, opened.folder)
        converted, told = conversion(proto, opened.name)
    after = loading.from_proto(converted, opened.name)
    batch, error = _compared(model, opened, after, options.seed)
    written = write_last(converted, path, None, options.force)
    firsts = [dim for each in opened.inputs for dim in each.type.tensor_type.shape.dim[:1]]
    return Exported(
        path=path, framework=opened.name.rpartition("/")[2], nodes=len(converted.graph.node),
        opset=next(o.version for o in converted.opset_import if o.domain in ("", "ai.onnx")),
        ir_version=converted.ir_version, dynamic_batch=any(dim.dim_param for dim in firsts),
        batches=(batch,), max_abs_error=error,
        notes=(*opened.notes, *told, *notes(written)),
    )  # fmt: skip


def _compared(source: Any, before: Model, after: Model, seed: int) -> tuple[int, float]:
    """Returns a batch size, and the largest difference of outputs on random inputs."""
    import numpy as np

    from tracer.inputs.request import on_sizes_that_run, request_for
    from tracer.interpreter.interpreter import Interpreter

    request = request_for(source, before, seed=seed)
    feedset, expected = on_sizes_that_run(
        request, lambda feeds: Interpreter(before).run(None, feeds.feeds)
    )
    outputs = Interpreter(after).run(None, feedset.feeds)
    differences = (
        float(np.abs(mine.astype(np.float64) - theirs.astype(np.float64)).max(initial=0))
        for mine, theirs in zip(outputs, expected, strict=True)
    )
    return feedset.batch or 1, max(differences, default=0.0)


def _to_qonnx(proto: onnx.ModelProto, name: str) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    from tracer.quantization.to_qonnx import left_conversions, to_qonnx

    converted = to_qonnx(proto, name)
    stayed = left_conversions(converted)
    if not stayed:
        return converted, ()
    listed = ", ".join(stayed[:3]) + (" …" if len(stayed) > 3 else "")
    return converted, (f"{plural(len(stayed), 'conversion')} without a form in QONNX: {listed}",)


def _to_qdq(proto: onnx.ModelProto, name: str) -> tuple[onnx.ModelProto, tuple[str, ...]]:
    from tracer.quantization.from_qonnx import from_qonnx

    converted = from_qonnx(proto)
    if not converted.integers and not converted.floats:
        raise UsageError(
            f"{name} has no Quant of QONNX that becomes QuantizeLinear",
            "Models in QONNX come from Brevitas, QKeras or `tracer export --to qonnx`.",
        )
    return converted.proto, (converted.note,)


_CONVERSIONS = {"qonnx": _to_qonnx, "qdq": _to_qdq}
"""They return the converted model, and notes."""
