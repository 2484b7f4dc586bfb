"""Query the installed onnxruntime: the versions it accepts, and the values of a model."""

from collections.abc import Callable, Sequence
from functools import cache
from pathlib import Path
from typing import Any

import onnx
import onnxruntime
from numpy.typing import NDArray

from tracer.errors import ModelError
from tracer.exporters.records import Arrays

_METADATA_IR = 10
_OLDEST = (10, 13)  # IR version and opset that every onnxruntime for Python >= 3.11 accepts


@cache
def newest_ir() -> int:
    """Returns the newest IR version that onnx writes and onnxruntime reads, by trying."""
    return _newest(onnx.IR_VERSION, _OLDEST[0], lambda ir: _accepts(ir, _OLDEST[1]))


@cache
def newest_opset() -> int:
    """Returns the newest opset that onnx defines and onnxruntime runs, by trying."""
    newest = onnx.defs.onnx_opset_version()
    return _newest(newest, _OLDEST[1], lambda opset: _accepts(newest_ir(), opset))


def fit_ir_version(proto: onnx.ModelProto) -> None:
    """Sets the oldest IR version that its opsets and metadata on nodes allow; in place."""
    needed = onnx.helper.find_min_ir_version_for(proto.opset_import, ignore_unknown=True)
    proto.ir_version = min(max(_METADATA_IR, needed), newest_ir())


def run(
    proto: onnx.ModelProto,
    arrays: Arrays,
    names: Sequence[str] = (),
    folder: Path | None = None,
) -> list[NDArray[Any]]:
    """Returns the values of the tensors `names` [default: the graph's outputs].

    The graph runs without onnxruntime's optimisations, on external data as they are in `folder`.
    Raises ModelError if onnxruntime refuses the model.
    """
    names = list(names) or [output.name for output in proto.graph.output]
    inputs = [value.name for value in proto.graph.input]
    feeds = dict(zip(inputs, arrays, strict=True))
    try:
        return list(_session(_exposing(proto, names), folder).run(names, feeds))
    except Exception as error:  # onnxruntime's errors have no common base class
        reason = str(error).splitlines()[0]
        raise ModelError(f"onnxruntime does not run the exported model: {reason}") from error


def _newest(newest: int, oldest: int, accepted: Callable[[int], bool]) -> int:
    return next((v for v in range(newest, oldest, -1) if accepted(v)), oldest)


def _accepts(ir_version: int, opset: int) -> bool:
    text = f'<ir_version: {ir_version}, opset_import: ["": {opset}]> g (float[1] x) => (float[1] y)'
    try:
        _session(onnx.parser.parse_model(text + " { y = Relu (x) }"))
    except Exception:  # each refusal has its own class
        return False
    return True


def _session(proto: onnx.ModelProto, folder: Path | None = None) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4  # messages come as exceptions
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    if folder is not None:
        entry = "session.model_external_initializers_file_folder_path"
        options.add_session_config_entry(entry, str(folder))
        # packed weights would be a copy of them
        options.add_session_config_entry("session.disable_prepacking", "1")
    return onnxruntime.InferenceSession(
        proto.SerializeToString(), options, providers=["CPUExecutionProvider"]
    )


def _exposing(proto: onnx.ModelProto, names: Sequence[str]) -> onnx.ModelProto:
    """Returns the model with `names` among its outputs."""
    present = {output.name for output in proto.graph.output}
    hidden = [name for name in names if name not in present]
    if not hidden:
        return proto
    exposed = onnx.ModelProto()
    exposed.CopyFrom(proto)
    exposed.graph.output.extend(onnx.ValueInfoProto(name=name) for name in hidden)
    return exposed
