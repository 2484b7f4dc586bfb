"""The drawings of the models in a report, each model once."""

from collections.abc import Sequence

from tracer.analyzers.views.report.layout import Layout, laid_out
from tracer.records.model_info import ModelInfo


def drawings(models: Sequence[ModelInfo]) -> tuple[tuple[Layout, ...], tuple[int | None, ...]]:
    """Returns the drawings, and for each model the position of its drawing.

    The position is None for a model without nodes, for one whose connections are not known, and for
    one too large to draw.
    """
    layouts: list[Layout] = []
    positions: dict[str, int | None] = {}
    for model in models:
        if model.sha256 in positions:
            continue
        topology = model.topology
        layout = laid_out(topology) if topology is not None and topology.nodes else None
        positions[model.sha256] = None if layout is None else len(layouts)
        layouts += [] if layout is None else [layout]
    return tuple(layouts), tuple(positions[model.sha256] for model in models)
