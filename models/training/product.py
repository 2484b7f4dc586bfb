"""What a finished run leaves: an ONNX model that knows what its classes are called."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import TYPE_CHECKING

from models.training.folder import replacing
from models.training.learner import Learner
from models.training.settings import Settings

if TYPE_CHECKING:
    from exporters.records import Exported

LABELS_KEY = "io.github.tracer-onnx.labels"
DATA_KEY = "io.github.tracer-onnx.trained-on"


def export(learner: Learner, settings: Settings, labels: tuple[str, ...], path: Path) -> Exported:
    """Write the learner's model to `path` with a dynamic batch, over whatever is there.

    Batch normalisation stays a node of its own, so that the nodes are the framework's layers; in
    Chainer it always does.
    Raises what `exporters.export` does.
    """
    import exporters

    options = exporters.ExportOptions(
        framework=settings.framework, keep_batchnorm=settings.framework == "torch", force=True
    )
    with replacing(path) as file:
        exported = exporters.export(
            learner.model, file, input_shape=(1, *settings.input_shape), options=options
        )
        _stamp(file, {LABELS_KEY: json.dumps(labels), DATA_KEY: settings.data})
    return dataclasses.replace(exported, path=path)


def _stamp(path: Path, props: dict[str, str]) -> None:
    import onnx

    proto = onnx.load(path)
    for key, value in props.items():
        proto.metadata_props.add(key=key, value=value)
    onnx.save(proto, path)
