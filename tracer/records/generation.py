"""What a trace of a language model knows beside its rows: its cache, and whole generations."""

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class CacheSize:
    """What a token of the cache takes: keys and values of `layers`, bytes of one batch entry.

    `heads` × `head_size` numbers of `dtype` are a key. `token_bytes` is 2 × layers × heads × size ×
    bytes of a number where all layers are alike, else their sum.
    """

    layers: int
    heads: int
    head_size: int
    dtype: str
    token_bytes: int

    def nbytes(self, batch: int, tokens: int) -> int:
        """Returns the bytes of `tokens` tokens of `batch` entries, by the formula."""
        return batch * tokens * self.token_bytes


@dataclass(frozen=True, slots=True)
class Generated:
    """Whole generations in one configuration: prefills, each with its decode steps; µs.

    `step_us` has a row for each generation; each step reads the cache that the step before
    returned. `allocated_bytes` are those of the cache that the last step returned.
    """

    batch: int
    threads: int | None
    optimization: str | None
    prefill_us: tuple[float, ...] = field(repr=False)
    step_us: tuple[tuple[float, ...], ...] = field(repr=False)
    allocated_bytes: int


@dataclass(frozen=True, slots=True)
class Generation:
    """The phases of a trace: tokens of the prefill, decode steps after it, and the cache.

    `measured` is empty for a count.
    """

    prefill: int
    decode: int | None
    cache: CacheSize
    measured: tuple[Generated, ...] = ()
