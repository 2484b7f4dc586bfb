"""Shapes that the graph computes replaced by constants, for the sizes of these inputs."""

from collections.abc import Sequence

import onnx
from onnx import numpy_helper

from tracer.errors import ModelError
from tracer.graph.model import Model
from tracer.inputs.feedset import FeedSet
from tracer.shapes.inference import inferred
from tracer.support.types import Array
from tracer.tuning.changes import Change
from tracer.tuning.findings import Findings
from tracer.tuning.setup import Setup

_ALWAYS = frozenset({"Constant"})


def _applies(findings: Findings) -> str | None:
    if not findings.setup.open_dims:
        return None
    known = _known(findings.model, findings.feedset)
    nodes = [node for node in findings.model.graph.node if _is_foldable(node, known)]
    ran = {kernel.node for kernel in findings.kernels}
    keys = [n.key for n in findings.model.nodes if not n.scope.path and n.proto in nodes]
    running = [key for key in keys if key in ran]
    if not running:
        return None
    rows = findings.evidence.rows
    share = findings.share_of(rows[rows["node"].isin(running)])
    return (
        f"{len(running)} kernels compute shapes that follow from those of the inputs, in "
        f"{share:.0%} of the time"
    )


def _values(findings: Findings) -> Sequence[str]:
    return ["shapes"]


def _apply(setup: Setup, value: str) -> Setup:
    known = _known(setup.model, setup.feedset)
    model = setup.model
    folded = onnx.ModelProto()
    folded.CopyFrom(setup.whole_proto)
    nodes = [node for node in folded.graph.node if not _is_foldable(node, known)]
    if len(nodes) == len(folded.graph.node):
        raise ModelError(f"{model.name}: no node computes a shape that is known from the inputs")
    constants = [
        numpy_helper.from_array(known[name], name)
        for node in folded.graph.node
        if _is_foldable(node, known)
        for name in node.output
        if name
    ]
    del folded.graph.node[:]
    folded.graph.node.extend(nodes)
    folded.graph.initializer.extend(constants)
    return setup.with_proto(folded)


def _known(model: Model, feedset: FeedSet) -> dict[str, Array]:
    """Returns the tensors of the main graph whose values follow from the shapes of the inputs."""
    values = inferred(model, feedset.shapes).values
    names = [name for node in model.graph.node for name in node.output if name]
    known = ((name, values.of(("", name))) for name in names)
    return {name: value for name, value in known if value is not None}


def _is_foldable(node: onnx.NodeProto, known: dict[str, Array]) -> bool:
    outputs = [name for name in node.output if name]
    return node.op_type not in _ALWAYS and bool(outputs) and all(name in known for name in outputs)


def _command(setup: Setup, value: str, model: str) -> str:
    sizes = "".join(f" --dim {name}={size}" for name, size in setup.open_dims.items())
    return f"tracer tune {model} --apply folding={value}{sizes} -o tuned.onnx"


CHANGE = Change("folding", "exact", 31, _applies, _values, _apply, _command)
