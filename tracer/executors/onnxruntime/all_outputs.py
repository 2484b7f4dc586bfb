"""What onnxruntime's rewritten graph computes: every tensor of it, on any inputs.

The graph that a session saved is run once more, without further rewriting and with all its
tensors as outputs. Tensors inside the bodies of If, Loop and Scan cannot be outputs.
"""

from __future__ import annotations

from collections.abc import Callable, Container, Mapping
from pathlib import Path
from typing import Any

import onnx
import onnxruntime as ort

from tracer.executors.onnxruntime import feeding, int8_workaround, sessions
from tracer.executors.onnxruntime.settings import OrtSettings
from tracer.graph.model import Model, expanded_keys
from tracer.inputs.feedset import Feeds


def opened(path: Path, fed: Container[str], threads: int) -> Callable[[Feeds], Mapping[str, Any]]:
    """A function from feeds to all tensors, by name, of the main graph saved at `path`.

    `fed` are the names of the inputs that will be fed. Weights that were folded away may still be
    listed as inputs, in models of old that list all of them; these are taken off.

    Raises ModelError for a graph that onnxruntime saves and does not load again; the function
    raises InputError for feeds that it does not run on.
    """
    proto = onnx.load(path, load_external_data=False)
    int8_workaround.shift(proto, path.parent)
    given = {weight.name for weight in proto.graph.initializer}
    for value in list(proto.graph.input):
        if value.name not in fed and value.name not in given:
            proto.graph.input.remove(value)
    shown = {value.name for value in proto.graph.output}
    made = [name for node in proto.graph.node for name in node.output if name]
    proto.graph.output.extend(onnx.ValueInfoProto(name=name) for name in made if name not in shown)
    saved = Model(proto, path, "", expanded_keys(proto, ()))
    names = [value.name for value in proto.graph.output]
    factory = sessions.Factory(
        saved, proto.SerializeToString(), OrtSettings(threads=threads, optimization="none")
    )
    session = factory.open()

    def run(feeds: Feeds) -> Mapping[str, Any]:
        outputs: Any = feeding.runner(saved, session, feeds)()
        return {name: _plain(value) for name, value in zip(names, outputs, strict=True)}

    return run


def _plain(value: Any) -> Any:
    """The array in one of onnxruntime's own values; None where numpy has no such type."""
    if not isinstance(value, ort.OrtValue):
        return value
    try:
        return value.numpy()
    except RuntimeError:
        return None
