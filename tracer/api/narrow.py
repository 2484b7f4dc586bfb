"""Makes a network fit narrow accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.analyzers.options import DEFAULT_ENERGY_MODEL
from tracer.api._calls import by_rules as contained
from tracer.support.arguments import TEXT, Rule, amount, either, integer, maybe, several
from tracer.support.progress import Progress

if TYPE_CHECKING:
    from tracer.exporters.subject import Subject
    from tracer.limits import Limits
    from tracer.narrowing.requirement import Guarantee
    from tracer.records.transformed import Narrowed

_RULES = {
    "bits": Rule(
        "widths, as '16', '12:20', 'conv1=18,*=16' or [14, 16]",
        either(TEXT, several(integer())).holds,
    ),
    "budget": amount(),
    "guarantee": TEXT,
    "tile": maybe(integer(1)),
    "weight_bits": maybe(integer(2, 8)),
}


@contained(_RULES)
def narrow(
    model: Subject,
    bits: str | Sequence[int],
    data: str | Path,
    *,
    output: str | Path | None = None,
    force: bool = False,
    limit: int | None = 512,
    test: str | Path | None = None,
    test_limit: int | None = None,
    metric: str | None = None,
    budget: float = 1.0,
    guarantee: Guarantee = "any-input",
    tile: int | None = None,
    weight_bits: int | None = None,
    batch: int = 32,
    energy: str = DEFAULT_ENERGY_MODEL,
    folder: str | Path = "data",
    progress: Progress | None = None,
    limits: Limits | None = None,
    in_process: bool = False,
) -> Narrowed:
    """Changes `model` so that no input makes a sum exceed `bits` bits, and scores it.

    Weights are rounded again, and a layer may read its activations in fewer bits, as the first
    `limit` samples of `data` lose the least: see `tracer.narrowing`. Where that loses more than
    `budget`, layers may become several nodes. A float model is quantised first.

    With `guarantee` "this-data", sums fit what `data` reach, and a quarter more, instead of any
    input. With `tile`, each `tile` terms are summed in `bits` bits, and their sums in 32.

    With `weight_bits`, weights are first rounded to so many bits; scores and sums before are of
    that model. Changed weights have no more bits than the weights that they take the place of.

    The training split of `data` is used where there is one. Scores are by `metric` on the data set
    `test` [default: the test split of `data`].

    With several widths, as `12:20`, each is tried, and the result is the narrowest whose score is
    within `budget` of the quantised model, in percentage points or the unit of the metric; the
    widest, if none is. The model goes to the file `output`, if there is one; `force` replaces a
    file.

    Energies of a sample are by the model `energy`: see `tracer.analyzers.energy`.

    All this is done in a child process, within `limits`, or with `in_process` in this one. Raises
    the errors of `tracer.errors`.
    """
    from tracer.api import _narrow
    from tracer.narrowing.requirement import NarrowOptions

    options = NarrowOptions(
        bits, guarantee, tile, weight_bits, budget, metric, limit, test_limit, batch, energy
    )
    return _narrow.narrow(model, data, test, options, output, force, Path(folder), progress)
