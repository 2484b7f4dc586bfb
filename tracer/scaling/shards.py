"""Cuts data into shards: some batches, which one task runs."""

from dataclasses import dataclass

SHARD_S = 4.0
"""Seconds that a shard takes, about: long beside the ms that it takes to send a task, and short
beside the time that a lost worker's task costs."""


@dataclass(frozen=True, slots=True)
class Shard:
    """The `count` batches from number `first` on; None are all of them, however many."""

    first: int = 0
    count: int | None = None

    @property
    def batches(self) -> slice:
        """The place of its batches in a sequence of all of them."""
        return slice(self.first, None if self.count is None else self.first + self.count)


def equal_size(batches: int, batch_s: float, workers: int) -> int:
    """Returns how many batches a shard has, so that shards take about `SHARD_S`.

    `batch_s` is what a batch takes. Shards are as many for each of `workers`.
    """
    most = max(round(SHARD_S / max(batch_s, 1e-9)), 1)
    shards = -(-batches // most)
    shards = min(-(-shards // workers) * workers, batches)
    return -(-batches // shards)


def cut(batches: int, size: int) -> tuple[Shard, ...]:
    """Returns shards of `size` batches; the last may be smaller."""
    return tuple(Shard(n, min(size, batches - n)) for n in range(0, batches, size))
