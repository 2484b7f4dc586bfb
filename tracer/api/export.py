"""Export a PyTorch or Chainer model to ONNX."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from exporters import pipeline
from exporters.records import Exported, ExportOptions, inputs_of
from exporters.source import load_source
from exporters.writing import check_target
from tracer.errors import UsageError
from tracer.support.arguments import check_arguments, instance, maybe

_RULES = {"options": maybe(instance("exporters.records.ExportOptions"))}


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
) -> Exported:
    """Writes `model` to `path` as ONNX and checks it against the framework on random inputs.

    `model` is a torch.nn.Module, a torch.export.ExportedProgram, a chainer.Link, or the name of
    one: `FILE.py:NAME`, `package.module:NAME` or `FILE.pt2`. The code of the named file is run.
    `args`, `weights` and `trust` apply to a named model (see `exporters.source.load_source`), whose
    random weights are drawn from `options.seed`.
    `input_shape` has the batch first, as in (1, 3, 32, 32). Several inputs are a sequence of
    shapes; `input_dtype` may then name a type for each. The default is the model's attribute
    `input_shape`, without the batch.

    Raises UsageError or ModelError if the model cannot be exported, InputError if `path` exists or
    cannot be written, LimitError above 2 GB, ThresholdError if onnxruntime and the framework
    disagree. Nothing is written in these cases.
    """
    check_arguments(locals(), _RULES)
    path, options = Path(path), options or ExportOptions()
    check_target(path, options.force)
    if isinstance(model, str):
        model = load_source(
            model, dict(args or {}), weights=weights, framework=options.framework, trust=trust,
            seed=options.seed,
        )  # fmt: skip
    elif args or weights:
        raise UsageError("args and weights apply to a model that is named, as in FILE.py:NAME")
    return pipeline.export(model, path, inputs_of(model, input_shape, input_dtype), options)
