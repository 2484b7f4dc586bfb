"""Cuts data into shards: some batches, which one task runs."""

from dataclasses import dataclass

SHARD_S = 4.0
"""Seconds that a shard takes at most, about: what the task of a lost worker costs."""
_SHORTEST_S = 0.1
"""Seconds that a shard takes at least, if it has several batches: fifty times what a task costs."""
_DEALT_S = 0.004
"""Seconds for each worker that a shard takes at least: a scheduler deals a task in half of that."""
_FOR_EACH = 4
"""Shards for each worker, where they are not too short: the last ones end at about one time."""


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
    """Returns how many batches a shard has, so that `workers` are busy until the end.

    `batch_s` is what a batch takes. A shard takes `SHARD_S` at most. Where a pass over the data is
    shorter than that for all workers, each has four shards of it, unless these were too short.
    """
    pass_s = batches * batch_s
    least_s = max(_SHORTEST_S, _DEALT_S * workers)
    shard_s = min(SHARD_S, max(least_s, pass_s / (_FOR_EACH * workers)))
    most = max(int(shard_s / max(batch_s, 1e-9)), 1)
    shards = -(-batches // most)
    if shards > workers:
        shards = min(-(-shards // workers) * workers, batches)
    return -(-batches // shards)


def cut(batches: int, size: int) -> tuple[Shard, ...]:
    """Returns shards of `size` batches; the last may be smaller."""
    return tuple(Shard(n, min(size, batches - n)) for n in range(0, batches, size))
