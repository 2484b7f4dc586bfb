"""What runs of shards tell: plain data that worker and client exchange."""

from collections.abc import Mapping
from dataclasses import dataclass, field

from tracer.accumulators.engine.overflow_counter import Counts
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.support.types import Array
from tracer.whatif.metric_scores import WideBatch


@dataclass(frozen=True, slots=True)
class ShardBaseline:
    """The run of a shard in accumulators that hold every sum.

    `widths` are the bits of the narrow nodes in the policy, by key in the order of the model, and
    `steps` (nodes,) the step of the main graph that each of them is in. `needed` (batches, nodes)
    are the widths that hold all partial sums of a batch. `altered` (batches, nodes, 2) counts
    saturation events and changed outputs by reduced-width products. `seconds` is how long it took.
    """

    widths: Mapping[str, int]
    steps: Array
    batches: tuple[WideBatch, ...] = field(repr=False)
    needed: Array = field(repr=False)
    altered: Array = field(repr=False)
    sums: Mapping[str, PartialSums] = field(repr=False)
    notes: tuple[str, ...]
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Question:
    """Asks for an evaluation of a shard at `widths`, by node.

    `needed` is that of the baseline of the shard: batches for which all widths suffice are left
    out. With `counted`, overflows are counted as well. The next questions are about widths `near`.
    """

    widths: Mapping[str, int]
    needed: Array = field(repr=False)
    counted: bool
    near: Mapping[str, int] | None = None


@dataclass(frozen=True, slots=True)
class ShardEvaluation:
    """The scores of the batches of a shard that change, and the overflows of these batches.

    Batches are numbered within the shard; the run of each began at a step of `starts`, and nodes
    before it are not in `counts`, which are by node. They are empty where only scores were asked.
    """

    scores: Mapping[int, Array] = field(repr=False)
    starts: Mapping[int, int] = field(repr=False)
    counts: Mapping[str, Counts] = field(repr=False)
