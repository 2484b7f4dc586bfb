"""Orders in which a dot product can be summed; each is a class of this module.

`Sequential` to `Sorted` are orders of the accumulator alone. `Tiles` sums tiles of terms in narrow
registers, which are then added up in a wide one: FBGEMM adds pairs of products in 16 bits for 256
terms, then adds the sum to 32 bits; datapaths with several levels do so too (AXE, arXiv
2409.17092).

An order consists of stages: the first stage sums groups of products, each further stage sums groups
of the previous sums, and the last stage has one group. `sequential` has one stage; a tree has many.
Nests of loops are in `nests`.
"""

import math
import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from functools import cache
from typing import Any, ClassVar

import numpy as np

from tracer.accumulators.spec import WIDEST, FloatRegister, Register, Shift, parts
from tracer.errors import UsageError
from tracer.support.types import Array
from tracer.text import suggest

ALL = "all"
_SPELLING = re.compile(r"([a-z]+)(?:\((.*)\))?")
_LEVEL_SPELLING = re.compile(
    rf"({ALL}|\d{{1,9}})(?:x(\d{{1,9}}))?(?::(u?)(\d{{1,3}})(?::([a-z]+))?)?"
    r"(?::>>(\d{1,3})(?::([a-z-]+)(?:(?<=stochastic)\((\d{1,9})\))?)?)?"
    r"(?::([a-z]+\d[a-z0-9-]*)(:saturate)?)?"
)
_SPILL = "spill="
_DIGITS = 9


@dataclass(frozen=True, slots=True)
class Terms:
    """The products of one dot product: a window for each channel, windows innermost.

    The window of a convolution is its `kernel`, row by row. A matrix product has windows of one.
    """

    channels: int
    kernel: tuple[int, ...] = ()

    @property
    def window(self) -> int:
        """The number of kernel positions."""
        return math.prod(self.kernel)

    @property
    def count(self) -> int:
        """The number of products."""
        return self.channels * self.window

    @property
    def shape(self) -> tuple[int, int, int, int]:
        """Channels, and the depth, height and width of the kernel; an axis that it lacks is 1."""
        *outer, height, width = 1, 1, *self.kernel
        return self.channels, math.prod(outer), height, width


@dataclass(frozen=True, slots=True)
class Stage:
    """Groups of numbers; each group is summed in the order of its row, starting with 0.

    `groups` (groups, longest), intp, are indices of products, or of sums of the previous stage; -1
    fills shorter rows. `register`, or `float_register` of a float accumulator, is the register of
    each group, if it is not the accumulator. The `shift` of a group's sum makes the next register's
    unit so much coarser. The sum of a group is narrowed by a `spill` after each so many numbers and
    at its end, and goes on.
    """

    groups: Array
    register: Register | None = None
    shift: Shift | None = None
    spill: "Level | None" = None
    float_register: FloatRegister | None = None

    def spills_after(self, step: int) -> bool:
        """Whether the sum of the one group is narrowed after a step; steps count from 0."""
        if self.spill is None:
            return False
        last = self.groups.shape[1] - 1
        return step == last or (step + 1) % (self.spill.size or last + 1) == 0


class Order(ABC):
    """How the products of a dot product are summed. Subclasses are frozen dataclasses."""

    __slots__ = ()
    reorders: ClassVar[bool] = False
    """Whether `arrange` depends on the products."""

    @classmethod
    def read(cls, sizes: Sequence[str]) -> "Order":
        """Returns the order with the sizes in parentheses. Raises UsageError for other text."""
        if not all(size.isascii() and size.isdigit() and len(size) <= _DIGITS for size in sizes):
            raise UsageError(f"'{','.join(sizes)}' is not a size", "It is a whole number.")
        return cls(*map(int, sizes))

    @abstractmethod
    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the stages; the last stage has one group."""

    def arrange(self, products: Array, start: Array) -> Array:
        """Returns the products (..., K), int64, in the order they are added to `start` (...)."""
        return products

    def envelope(self, low: Array, high: Array, start: Array) -> tuple[Array, Array]:
        """Returns bounds (...) of all partial sums of products (..., K) between `low` and `high`.

        Used where `arrange` depends on the products. These bounds hold for any order.
        """
        return start + np.minimum(low, 0).sum(-1), start + np.maximum(high, 0).sum(-1)

    def __str__(self) -> str:
        """The spelling that `named` reads."""
        own: Any = self  # every order is a dataclass
        sizes = [str(getattr(self, field.name)) for field in fields(own)]
        name = type(self).__name__.lower()
        return f"{name}({','.join(sizes)})" if sizes else name


@dataclass(frozen=True, slots=True)
class Sequential(Order):
    """The terms in the order of the operator's definition: channel, kernel row, column."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns one stage of all terms."""
        return (one_group(terms.count),)


@dataclass(frozen=True, slots=True)
class Channelwise(Order):
    """The window of each channel, then the channels; a matrix product is summed sequentially."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the windows and the channels."""
        if terms.window == 1:
            return (one_group(terms.count),)
        return Stage(rows_of(terms.count, terms.window)), one_group(terms.channels)


@dataclass(frozen=True, slots=True)
class Chunked(Order):
    """Sums of `size` consecutive terms each, then their sum."""

    size: int

    def __post_init__(self) -> None:
        check_size("a chunk", self.size)

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the chunks and their sum."""
        chunks = Stage(rows_of(terms.count, self.size))
        return chunks, one_group(len(chunks.groups))


@dataclass(frozen=True, slots=True)
class Lanes(Order):
    """Term k is added to lane k mod `size`, as in a vector register; then the lanes in order."""

    size: int

    def __post_init__(self) -> None:
        check_size("a number of lanes", self.size)

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the lanes and their sum."""
        lanes = Stage(rows_of(terms.count, self.size).T)
        return lanes, one_group(len(lanes.groups))


@dataclass(frozen=True, slots=True)
class Tree(Order):
    """Pairs, pairs of pairs and so on; an odd number at the end passes to the next level."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns one stage for each level."""
        levels = []
        count = terms.count
        while count > 2:
            levels.append(Stage(rows_of(count, 2)))
            count = -(-count // 2)
        return (*levels, one_group(count))


_MADDUBS_PAIR = Register(16)


@dataclass(frozen=True, slots=True)
class Maddubs(Order):
    """Pairs in 16 bits, then `size` lanes of the accumulator: 16 in a register of 256 bits.

    Intel's instruction PMADDUBSW multiplies unsigned by signed bytes and adds neighbours with
    saturation to 16 bits (Software Developer's Manual, volume 2B); libraries for int8 products add
    the results lane by lane.
    """

    size: int = 16

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns the pairs, the lanes and their sum."""
        pairs = Stage(rows_of(terms.count, 2), _MADDUBS_PAIR)
        return pairs, *Lanes(self.size).stages(Terms(len(pairs.groups)))


@dataclass(frozen=True, slots=True)
class Sorted(Order):
    """Adds a term of the sign opposite to the exact sum so far; at 0 a positive one.

    The idea of sorted partial sums (PQS, arXiv 2504.09064) without the rounds of sorting. While
    terms of both signs remain, no sum exceeds the largest term; afterwards sums are monotone.
    """

    reorders: ClassVar[bool] = True

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns one stage of all terms."""
        return (one_group(terms.count),)

    def arrange(self, products: Array, start: Array) -> Array:
        """Returns the products in the order they are added."""
        depth = products.shape[-1]
        positives = np.argsort(products < 0, axis=-1, kind="stable")
        split = (products >= 0).sum(-1)
        queue = np.take_along_axis(products, positives, -1)
        out = np.empty_like(products)
        total = start.astype(np.int64, copy=True)
        up, down = np.zeros_like(split), split.copy()
        for k in range(depth):
            take_up = (up < split) & ((total <= 0) | (down == depth))
            index = np.where(take_up, up, down)
            term = np.take_along_axis(queue, index[..., None], -1)[..., 0]
            out[..., k] = term
            total += term
            up += take_up
            down += ~take_up
        return out

    def envelope(self, low: Array, high: Array, start: Array) -> tuple[Array, Array]:
        """Returns bounds from the start, the largest term of each sign, and the final sum.

        A negative term is added to a sum of at least 1, a positive term to a sum of at most 0.
        """
        least, greatest = Order.envelope(self, low, high, start)
        balanced_low = np.minimum(start, np.minimum(1 + low.min(-1), start + low.sum(-1)))
        balanced_high = np.maximum(start, np.maximum(high.max(-1), start + high.sum(-1)))
        return np.maximum(least, balanced_low), np.minimum(greatest, balanced_high)


@dataclass(frozen=True, slots=True)
class Runtime(Order):
    """The order of onnxruntime's kernel of a node, which stands here until it is revealed."""

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Raises UsageError: the order belongs to the nodes of a model that runs."""
        raise UsageError(
            "order 'runtime' is that of onnxruntime's kernels, which this does not run",
            "tracer interpret and whatif take it; others are sequential, tree and so on.",
        )


@dataclass(frozen=True, slots=True)
class Level:
    """Sums of `size` terms each, `stride` apart; None sums all terms.

    `register`, or `float_register`, is what they are summed in; without any it is the accumulator,
    or 64 bits before a `shift`.
    """

    size: int | None
    register: Register | None = None
    stride: int = 1
    shift: Shift | None = None
    float_register: FloatRegister | None = None

    def __post_init__(self) -> None:
        check_size("a stride", self.stride)
        if self.size is not None:
            check_size("a tile", self.size)
        if self.shift is not None and self.register is None:
            object.__setattr__(self, "register", Register(WIDEST))

    @property
    def is_own(self) -> bool:
        """Whether the sums have a register of their own."""
        return self.register is not None or self.float_register is not None

    @classmethod
    def read(cls, text: str) -> "Level":
        """Returns the level of this spelling. Raises UsageError."""
        match = _LEVEL_SPELLING.fullmatch(text.strip())
        if match is None or (match[9] and (match[4] or match[6])):
            raise UsageError(
                f"'{text}' is not a level of tiles",
                "It is size:bits:overflow:>>shift:rounding, as 256:16, 256:u16:wrap or 64:20:>>4, "
                "or size:format, as 128:fp16; 2x8 takes terms that are 8 apart.",
            )
        size, stride, sign, bits, overflow, shift, rounding, seed, form, saturates = match.groups()
        word: Any = overflow or "saturate"  # Register and Shift check the words
        rule: Any = rounding or "floor"
        return cls(
            None if size == ALL else int(size),
            Register(int(bits), word, unsigned=sign == "u") if bits else None,
            int(stride or 1),
            Shift(int(shift), rule, int(seed or 0)) if shift else None,
            FloatRegister(form, saturates is not None) if form else None,
        )

    def groups(self, count: int) -> Array:
        """Returns the positions of `count` terms by group, as `Stage` has them."""
        size = count if self.size is None else min(self.size, -(-count // self.stride))
        if self.stride == 1 or not count:
            return rows_of(count, max(size, 1))
        blocks = -(-count // (size * self.stride))
        positions = np.arange(blocks * size * self.stride).reshape(blocks, size, self.stride)
        rows = positions.swapaxes(1, 2).reshape(-1, size)
        rows[rows >= count] = -1
        return rows[rows[:, 0] >= 0]

    def __str__(self) -> str:
        size = ALL if self.size is None else str(self.size)
        stride = "" if self.stride == 1 else f"x{self.stride}"
        parts = f"{size}{stride}", self.register, self.shift, self.float_register
        return ":".join(str(part) for part in parts if part is not None)


@dataclass(frozen=True, slots=True)
class Tiles(Order):
    """Sums the tiles of each level, then the last sums in the accumulator.

    A level is spelled `size:bits:overflow:>>shift`, as in `tiles(2:16,128:16:wrap)`; `2x8` takes
    terms that are 8 apart, and `all` all terms. With a `spill`, as in `tiles(4:18,spill=64:16)`,
    the sum in the accumulator is narrowed after each 64 of what it adds, and at its end: it loses
    the bits of a shift and what 16 bits do not hold, and goes on in its old unit. Raises UsageError
    for a level that adds in the accumulator before a shift, and for a spill without a width. In a
    float accumulator levels have formats: `fp32(order=tiles(128:fp16))`.
    """

    levels: tuple[Level, ...]
    spill: Level | None = None

    def __post_init__(self) -> None:
        if not self.levels and self.spill is None:
            raise UsageError("an order of tiles has no level", "One is written as tiles(256:16).")
        shifting = [number for number, level in enumerate(self.levels) if level.shift]
        before = self.levels[: shifting[-1]] if shifting else ()
        if any(level.register is None for level in before):
            raise UsageError(
                f"{self}: the accumulator adds in two units, before a shift and after it",
                "Give each level before a shift a width of its own, as in 64:20.",
            )
        if self.spill is not None and (self.spill.register is None or self.spill.stride > 1):
            raise UsageError(
                f"'{self.spill}' is not a spill", "It is size:bits, as in spill=256:16."
            )

    @classmethod
    def read(cls, sizes: Sequence[str]) -> "Tiles":
        """Returns the order with these spellings of levels. Raises UsageError."""
        words = [size.strip() for size in sizes]
        spills = words.pop().removeprefix(_SPILL) if words and _SPILL in words[-1] else None
        levels = tuple(map(Level.read, words))
        return cls(levels, None if spills is None else Level.read(spills))

    def stages(self, terms: Terms) -> tuple[Stage, ...]:
        """Returns a stage for each level, and the sum of the last tiles."""
        stages, count = [], terms.count
        for level in self.levels:
            groups = level.groups(count)
            stages.append(
                Stage(groups, level.register, level.shift, float_register=level.float_register)
            )
            count = len(groups)
        return (*stages, replace(one_group(count), spill=self.spill))

    def __str__(self) -> str:
        """The spelling that `named` reads."""
        spill = [] if self.spill is None else [f"{_SPILL}{self.spill}"]
        return f"tiles({','.join([*map(str, self.levels), *spill])})"


def named(spelling: str) -> Order:
    """Returns the order for `sequential`, `chunked(32)` and so on. Raises UsageError."""
    match = _SPELLING.fullmatch(spelling.strip())
    if match is None or match[1] not in order_readers():
        near = suggest(spelling.partition("(")[0], order_readers())
        raise UsageError(
            f"'{spelling}' is not an order",
            f"{near}Orders: {', '.join(order_readers())}; sizes as in chunked(32).",
        )
    try:
        return order_readers()[match[1]](parts(match[2], ",") if match[2] else ())
    except TypeError as error:
        raise UsageError(
            f"order '{spelling}': {'a size is missing' if not match[2] else 'it has no size'}",
            "Sizes are written as in chunked(32).",
        ) from error


@cache
def order_readers() -> Mapping[str, Callable[[Sequence[str]], Order]]:
    """Returns what reads the sizes of each order, by its name."""
    from tracer.accumulators.spec import nests  # which have orders of this module within

    kinds = [kind for kind in (*globals().values(), nests.Nest) if isinstance(kind, type)]
    own = {kind.__name__.lower(): kind.read for kind in kinds if issubclass(kind, Order)}
    del own["order"]
    return dict(sorted({**own, "positionwise": nests.read_positionwise}.items()))


@cache
def shifts(order: Order, terms: Terms) -> tuple[Shift, ...]:
    """Returns the shifts of the stages of an order, from the products to the accumulator."""
    return tuple(stage.shift for stage in order.stages(terms) if stage.shift is not None)


def rows_of(count: int, length: int) -> Array:
    """Returns indices 0 to `count` - 1 in rows of `length`; -1 fills the last row.

    The row is shorter where `count` is less than `length`.
    """
    length = min(length, max(count, 1))
    rows = np.full(-(-count // length) * length, -1, np.intp)
    rows[:count] = np.arange(count)
    return rows.reshape(-1, length)


def one_group(count: int) -> Stage:
    """Returns the stage that sums `count` numbers in their order."""
    return Stage(np.arange(count, dtype=np.intp)[None])


def check_size(what: str, size: int) -> None:
    """Raises UsageError for a size below 1."""
    if size < 1:
        raise UsageError(f"{what} of {size}", "The size is 1 or more.")
