"""The view of an export: the file that was written, and how it was checked."""

from dataclasses import asdict, replace
from typing import Any

import onnx
import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.page import Page, facts
from tracer.exporters.records import Exported
from tracer.graph import stored_weights


def page(result: Exported, options: ViewOptions) -> Page:
    """One table of names and values, and the notes."""
    rows = table(result, options)
    return replace(facts(str(result.path), rows[rows["name"] != "notes"]), notes=result.notes)


def table(result: Exported, options: ViewOptions) -> pd.DataFrame:
    """`name` and `value`, a row for each field."""
    rows = [(name, str(value)) for name, value in document(result, options).items()]
    return pd.DataFrame(rows, columns=["name", "value"])


def document(result: Exported, options: ViewOptions) -> dict[str, Any]:
    """The fields of `Exported`."""
    return {**asdict(result), "path": str(result.path)}


def model(result: Exported, options: ViewOptions) -> bytes:
    """The file that was written. Raises UsageError where its weights are in a file beside it."""
    stored_weights.refuse_apart(onnx.load(result.path, load_external_data=False))
    return result.path.read_bytes()
