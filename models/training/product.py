"""Export a trained model to ONNX, with the names of its classes."""

import dataclasses
import json
import tempfile
from pathlib import Path

import onnx

from models.training.learner import Learner
from models.training.settings import TrainSettings
from tracer.api import export as api
from tracer.exporters.records import Exported, ExportOptions
from tracer.support.files import write_atomically

AGREEMENT = 1e-4  # tolerance of the export, as a share of the outputs' range
LABELS_KEY = "io.github.tracer-onnx.labels"
DATA_KEY = "io.github.tracer-onnx.trained-on"


def export(
    learner: Learner, settings: TrainSettings, labels: tuple[str, ...], path: Path
) -> Exported:
    """Writes the learner's model to `path` with a dynamic batch; overwrites an existing file.

    Batch normalisation stays a node, so that nodes are the framework's layers. Raises the errors of
    `tracer.export`.
    """
    options = ExportOptions(
        framework=settings.framework, keep_batchnorm=settings.framework == "torch", rtol=AGREEMENT
    )
    shape = (1, *settings.input_shape) if labels else None  # a language model has its own
    with tempfile.TemporaryDirectory() as folder:  # `path` must never hold a model without labels
        exported = api.export(
            learner.model,
            Path(folder) / path.name,
            input_shape=shape,
            options=options,
        )
        props = {LABELS_KEY: json.dumps(labels)} if labels else {}
        props[DATA_KEY] = settings.data
        write_atomically(path, _stamped(exported.path, props))
    return dataclasses.replace(exported, path=path)


def _stamped(path: Path, props: dict[str, str]) -> bytes:
    proto = onnx.load(path)
    for key, value in props.items():
        proto.metadata_props.add(key=key, value=value)
    return proto.SerializeToString(deterministic=True)
