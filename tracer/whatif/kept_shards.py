"""Keeps results of shards, so that an evaluation that was interrupted goes on where it was."""

from tracer.records.whatif import Widths
from tracer.scaling.shards import Shard
from tracer.whatif.shards import ShardBaseline, ShardEvaluation


class KeptShards:
    """Keeps nothing: what a what-if without a file uses."""

    def size(self) -> int | None:
        """Returns how many batches a shard has; None where nothing is kept."""
        return None

    def keep_size(self, size: int) -> None:
        """Keeps how many batches a shard has: other shards could not use the results."""

    def baseline(self, shard: Shard) -> ShardBaseline | None:
        """Returns the run of a shard in wide accumulators; None where it is not kept."""
        return None

    def keep_baseline(self, shard: Shard, result: ShardBaseline) -> None:
        """Keeps the run of a shard in wide accumulators."""

    def evaluation(self, shard: Shard, widths: Widths, counted: bool) -> ShardEvaluation | None:
        """Returns the run of a shard at these widths; None where it is not kept."""
        return None

    def keep_evaluation(
        self, shard: Shard, widths: Widths, counted: bool, result: ShardEvaluation
    ) -> None:
        """Keeps the run of a shard at these widths."""
