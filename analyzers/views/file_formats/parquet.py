"""`.parquet`: the table of a result with its types (needs the `parquet` extra)."""

import io

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.file_formats import Extra, Format


def render(table: pd.DataFrame, options: ViewOptions) -> bytes:
    """Apache Parquet as pandas writes it."""
    buffer = io.BytesIO()
    table.to_parquet(buffer, index=False)
    return buffer.getvalue()


FORMATS = (Format("parquet", "table", render, is_binary=True, needs=Extra("pyarrow", "parquet")),)
