"""The graph that onnxruntime makes of a model: its nodes have the names of the model's own.

A fused node has the name, module and source line of its first node.
"""

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import onnx
import onnxruntime as ort
from onnx.external_data_helper import load_external_data_for_model

from tracer.executors.onnxruntime import kernel_nodes, sessions
from tracer.executors.settings import OrtSettings
from tracer.graph import loading, stored_weights
from tracer.graph.model import (
    IR_WITH_UNLISTED_WEIGHTS,
    Model,
    canonical_domain,
    encoded,
    node_protos,
)
from tracer.graph.provenance import pass_on_metadata
from tracer.support.temporary import TemporaryFolder
from tracer.text import plural

FILE = "optimized.onnx"
"""The file of the graph, in the folder with its weights."""


@contextmanager
def optimized_model(model: Model, settings: OrtSettings) -> Iterator[Model]:
    """Yields the graph that a session with `settings` runs, under the name and hash of `model`.

    Raises the errors of a session.
    """
    with TemporaryFolder() as folder:
        proto = optimize(model, settings, folder)
        if stored_weights.is_large(model):
            (folder / FILE).write_bytes(encoded(proto, model.name))
            made = loading.load(folder / FILE)
        else:
            made = loading.from_proto(proto, model.name)
        note = (
            f"the graph is what onnxruntime {ort.__version__} makes of the model at the level "
            f"{settings.optimization}: {plural(len(made.nodes), 'node')} of {len(model.nodes)}"
        )
        yield replace(
            made, sha256=model.sha256, subject=model.name, notes=(*model.notes, note),
            operators=model.operators,
        )  # fmt: skip


def optimize(model: Model, settings: OrtSettings, folder: Path) -> onnx.ModelProto:
    """Returns the graph that a session with `settings` runs; large weights are in `folder`.

    Raises the errors of a session.
    """
    sessions.Factory.of(model, settings).open(optimized=folder / FILE)
    proto = onnx.load(folder / FILE, load_external_data=False)
    # folding adds weights to the inputs, and makes others needless
    list_inputs(proto, {value.name for value in model.inputs})
    # from names that are safe for onnxruntime to keys
    metadata, named = {node.key: node.proto.metadata_props for node in model.nodes}, set()
    for made in node_protos(proto.graph):
        key = kernel_nodes.named_node(model, made.name)
        if key is None or key in named:  # new, or one more part of a node
            made.name = kernel_nodes.original(model, made.name)
        else:
            made.name = key
        if key is not None:
            named.add(made.name)
            del made.metadata_props[:]
            made.metadata_props.extend(metadata[key])
    pass_on_metadata(proto, named)
    proto.metadata_props.extend(model.proto.metadata_props)  # what sessions run has none
    keep_imports(proto, model)
    if not stored_weights.is_large(model):
        load_external_data_for_model(proto, str(folder))
    return proto


def keep_imports(proto: onnx.ModelProto, model: Model) -> None:
    """Removes the opsets of unused domains: onnxruntime lists all domains that it knows."""
    used = {canonical_domain(node.domain) for node in node_protos(proto.graph)} | {""}
    versions = {
        canonical_domain(entry.domain): entry.version
        for entry in proto.opset_import
        if canonical_domain(entry.domain) in used | set(model.opsets)
    }
    del proto.opset_import[:]
    for domain, version in versions.items():
        proto.opset_import.add(domain=domain, version=version)


def list_inputs(proto: onnx.ModelProto, names: Collection[str]) -> None:
    """Takes inputs with other names, which are weights, out of the list of inputs."""
    proto.ir_version = max(proto.ir_version, IR_WITH_UNLISTED_WEIGHTS)
    kept = [value for value in proto.graph.input if value.name in names]
    copies = [onnx.ValueInfoProto.FromString(value.SerializeToString()) for value in kept]
    del proto.graph.input[:]
    proto.graph.input.extend(copies)
