"""Show which images overflow, for experiment 5."""

from collections.abc import Mapping
from dataclasses import replace

import tracer
from experiments import _page
from experiments._evaluating import ACCUMULATOR, BATCH, Sums, by_image
from tracer.accumulators.spec.policy import Policy
from tracer.analyzers.grouping import by_sample
from tracer.graph.model import Model
from tracer.inputs.datasets.dataset import Dataset
from tracer.inputs.datasets.opening import open_dataset, without_split
from tracer.inputs.request import Samples

WORST = 5
"""Images that the page shows."""


def images(model: Model, dataset: Dataset, sums: Sums) -> str:
    """Returns the images with the most overflows at B, and what the training images need."""
    bits = sums.answer.uniform.widths[0] if sums.answer.uniform else ACCUMULATOR.bits
    table = by_sample(by_image(model, dataset, replace(ACCUMULATOR, bits=bits)).runs[0])
    over = table[table["overflow_outputs"] > 0].nlargest(WORST, "overflow_outputs")
    names: Mapping[str, str] = dict(
        zip((layer.node for layer in sums.answer.sums), sums.layers, strict=True)
    )
    rows = (
        (row["sample"], f"{row['overflow_outputs']:,} of {row['outputs']:,}",
         names[row["worst_node"]], f"{row['acc_min']:,}", f"{row['acc_max']:,}",
         f"{row['outputs_changed']:,}")
        for row in over.to_dict("records")
    )  # fmt: skip
    header = ("image", "sums that overflow", "most in ", "lowest", "highest", "sums changed")
    count = int((table["overflow_outputs"] > 0).sum())
    return (
        f"At {bits} bits {count:,} of {len(table):,} images overflow; these overflow most. "
        f"`--by sample -o overflow.csv` has a row for each image.\n\n{_page.table(header, rows)}"
        f"\n\n{_training(model, dataset)}"
    )


def _training(model: Model, dataset: Dataset) -> str:
    name = f"{without_split(dataset.name)}:train"
    trace = tracer.interpret(
        model, accumulator=Policy.of(ACCUMULATOR), inputs=Samples(name, dataset.limit), batch=BATCH
    )
    nodes = trace.nodes[trace.nodes["bits"].notna()]
    count = open_dataset(name, model, limit=dataset.limit).samples
    return (
        f"All {count:,} images of {name} need {int(nodes['bits_observed'].max())} bits: "
        f"{nodes['acc_min'].min():,} to {nodes['acc_max'].max():,}. In the original, the run over "
        "the training images did not finish."
    ).replace("-", "−")
