"""The model of a trace with what was measured in the metadata of its nodes."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import onnx

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.timing import wall
from tracer.analyzers.views.trace.headline import headline
from tracer.analyzers.views.trace.sections import sections
from tracer.analyzers.views.trace.timed_rows import present
from tracer.errors import InputError, UsageError
from tracer.graph import loading
from tracer.graph.model import expanded_keys, node_protos
from tracer.graph.stored_weights import has_external_data
from tracer.records.columns import COLUMNS
from tracer.records.model_info import ModelInfo
from tracer.records.trace import Trace, distinctions
from tracer.text import brief

PREFIX = "tracer."

_OF_THE_NODE = ("node", "index", "domain", "module", "source", "input_shapes", "output_shapes")
"""Columns that the model itself says."""

_SHOWN = tuple(name for name in COLUMNS if name not in _OF_THE_NODE)


def annotated(trace: Trace, options: ViewOptions) -> bytes:
    """Returns the model with `tracer.<column>` in the `metadata_props` of its nodes.

    Nothing else changes: weights outside the file stay where they are, neither read nor copied. So
    such a model can only be written to its own folder. Nodes inside of functions have no metadata,
    as every call shares them. Raises InputError where the model's file is unknown, gone or another
    one, UsageError for another folder, ModelError for a file that is no valid model.
    """
    file = _file(trace.model, options)
    proto = loading.read(file)
    if has_external_data(proto):
        _check_folder(file, options.folder)
    whole, values = _values(trace)
    _annotate(proto, whole)
    for node, key in zip(node_protos(proto.graph), expanded_keys(proto), strict=True):
        own = values.get(key, {})
        is_same = own.get(f"{PREFIX}op_type") == node.op_type
        _annotate(node, {k: v for k, v in own.items() if is_same and k != f"{PREFIX}op_type"})
    content: bytes = proto.SerializeToString()
    return content


def _file(info: ModelInfo, options: ViewOptions) -> Path:
    """Returns the file of the traced model. Raises InputError where there is no such file.

    A trace without its path has the name, which may be here or where the output goes.
    """
    here = [folder / Path(info.name).name for folder in (Path(), options.folder or Path())]
    place = options.model or info.path or next(filter(Path.is_file, here), None)
    if place is None:
        raise InputError(
            f"the trace of {brief(info.name)} does not say where the model's file is",
            "Name it with --model.",
        )
    file = loading.find(Path(place))
    if not file.is_file():
        raise InputError(f"{file}: not a file", "Name the model's file with --model.")
    if loading.sha256(file) != info.sha256:
        raise InputError(
            f"{file}: not the model that was traced, or it has changed since",
            "Name the file that was traced with --model, or trace this one.",
        )
    return file


def _check_folder(file: Path, folder: Path | None) -> None:
    """Raises UsageError where a file in `folder` would not find the weights beside `file`."""
    home = file.resolve().parent
    if folder is None or folder.resolve() != home:
        raise UsageError(
            f"{file}: weights lie in files beside it, and are not copied",
            f"Write the annotated model to {home}.",
        )


def _values(trace: Trace) -> tuple[dict[str, str], dict[str, dict[str, str]]]:
    """Returns the entries of the model, and those of each node by key.

    Those of several runs say of which.
    """
    shown = sections(trace)
    runs = [section.run for section in shown if section.run is not None]
    labels = distinctions(runs) if len(runs) == len(shown) else ("",) * len(shown)
    whole: dict[str, str] = {}
    values: dict[str, dict[str, str]] = {}
    for section, label in zip(shown, labels, strict=True):
        mark = f" ({label})" if label else ""
        whole[f"{PREFIX}run{mark}"] = headline(trace, section)
        if section.run is not None:
            whole[f"{PREFIX}wall_us{mark}"] = str(wall(section.run)["mean"])
        for row in present(section.nodes, ("node", *_SHOWN)):
            own = values.setdefault(str(row["node"]), {f"{PREFIX}op_type": str(row.get("op_type"))})
            names: Sequence[str] = [n for n in row if n not in ("node", "op_type")]
            own |= {f"{PREFIX}{name}{mark}": str(row[name]) for name in names}
    return whole, values


def _annotate(proto: onnx.ModelProto | onnx.NodeProto, values: Mapping[str, str]) -> None:
    """Replaces the entries that tracer made before."""
    others = [e for e in proto.metadata_props if not e.key.startswith(PREFIX)]
    if values or len(others) < len(proto.metadata_props):
        copies = [onnx.StringStringEntryProto(key=e.key, value=e.value) for e in others]
        del proto.metadata_props[:]
        proto.metadata_props.extend(copies)
        for key, value in values.items():
            proto.metadata_props.add(key=key, value=value)
