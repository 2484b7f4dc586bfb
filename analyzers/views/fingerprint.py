"""The view of a Fingerprint: a row for each model."""

from dataclasses import asdict
from typing import Any

import pandas as pd

from tracer.analyzers.options import ViewOptions
from tracer.analyzers.views.page import Page, Table, name_column, number_column
from tracer.records.bits import Fingerprint


def page(result: Fingerprint, options: ViewOptions) -> Page:
    """One table of the models."""
    columns = (
        name_column("model", "model", 0),
        number_column("kernels", "kernels", "{:.0f}".format, 1),
        number_column("rule known", "known", "{:.0f}".format, 1),
        name_column("level", "level", 3),
        name_column("SHA-256 of outputs", "sha256", 2),
    )
    return Page((Table(result.machine, columns, table(result, options)),))


def table(result: Fingerprint, options: ViewOptions) -> pd.DataFrame:
    """The kernels of each model, how many have a rule, and the SHA-256 of the outputs."""
    rows = [
        {"model": each.name, "kernels": len(each.nodes), "known": each.known_rules,
         "level": each.optimization, "threads": each.threads,
         "sha256": " ".join(value[:16] for value in each.outputs.values())}
        for each in result.models
    ]  # fmt: skip
    return pd.DataFrame(rows)


def document(result: Fingerprint, options: ViewOptions) -> dict[str, Any]:
    """All that another machine replays; it is read again by `tracer compare --machine`."""
    return asdict(result)
