"""A sum that someone else computes, two vectors of numbers in and one number out; and its rule.

Random vectors of integers show what it does beyond the range of its registers.
"""

import inspect
import math
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from tracer.accumulators import hardware
from tracer.accumulators.spec import Register, float_accumulator, orders
from tracer.accumulators.spec.accumulator import Accumulator, AnyAccumulator
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.arithmetic.kernel import LEAST_RESULTS
from tracer.arithmetic.trees import branches_of, drawn
from tracer.errors import InputError, UsageError
from tracer.support.types import Array
from tracer.text import plural

AUTO = "auto"
_RANGE = re.compile(r"(-?\d{1,10}):(-?\d{1,10})")
_INTEGERS = ("int8", "uint8", "int16", "uint16", "int32", "int64")
_NUMPY_FLOATS = {"float64": "fp32", "float32": "fp32", "float16": "fp16"}
_MOST_BITS = 60
"""Bits of the greatest sums of integers that are tried: the emulation stays below 2^62."""
_ALIKE = 8
"""Vectors in which the same terms cancel."""
_HINT = (
    f"They are {', '.join(_INTEGERS)}, a range such as -100:100, float64, float32, float16, "
    f"{', '.join(float_accumulator.FORMAT_NAMES)} or eXmY; "
    "uint8/int8 sets the first and the second vector."
)


@dataclass(frozen=True, slots=True)
class Numbers:
    """What one of the vectors holds: integers from `low` to `high`, or floats of a `format`.

    Numbers of float64 have the exponents of float32, which are enough to tell a rule.
    """

    dtype: np.dtype[Any]
    low: int = 0
    high: int = 0
    format: float_accumulator.FloatFormat | None = None

    @classmethod
    def read(cls, text: str, terms: int) -> "Numbers":
        """Returns the numbers that a text names. Raises UsageError."""
        if match := _RANGE.fullmatch(text):
            return cls(np.dtype(np.int64), int(match[1]), int(match[2]))._limited(text, terms)
        if text in _INTEGERS:
            info = np.iinfo(text)
            return cls(np.dtype(text), int(info.min), int(info.max))._limited(text, terms)
        name = _NUMPY_FLOATS.get(text, text)
        if not float_accumulator.is_float_format(name):
            raise UsageError(f"operands '{text}'", _HINT)
        dtype = text if text in ("float16", "float64") else "float32"
        return cls(np.dtype(dtype), format=float_accumulator.float_format(name))

    def _limited(self, text: str, terms: int) -> "Numbers":
        """Returns the numbers whose sums of products stay within 64 bits."""
        if self.low > 0 or self.high < 1:
            raise UsageError(f"operands '{text}'", "The range has 0 and 1 in it.")
        most = 1 << (_MOST_BITS - math.ceil(math.log2(max(terms, 1)))) // 2
        return Numbers(self.dtype, max(self.low, -most), min(self.high, most))

    @property
    def fraction_bits(self) -> int:
        """The bits of fraction of a float."""
        assert self.format is not None
        return np.finfo(np.float64).nmant if self.dtype == np.float64 else self.format.fraction_bits

    @property
    def largest(self) -> int:
        """The largest magnitude of an integer."""
        return max(self.high, -self.low)


@dataclass(frozen=True, slots=True)
class Operands:
    """The numbers of both vectors."""

    left: Numbers
    right: Numbers
    text: str

    @classmethod
    def read(cls, text: str, terms: int) -> "Operands":
        """Returns the operands of a text such as `int8` or `uint8/int8`. Raises UsageError."""
        first, _, second = text.partition("/")
        sides = Numbers.read(first.strip(), terms), Numbers.read((second or first).strip(), terms)
        if (sides[0].format is None) != (sides[1].format is None):
            raise UsageError(f"operands '{text}'", "Both vectors hold integers, or both floats.")
        return cls(*sides, text)

    @property
    def are_integers(self) -> bool:
        """Whether both vectors hold integers."""
        return self.left.format is None

    def factors(self, product: int) -> tuple[int, int]:
        """Returns two operands whose product is the greatest up to |`product`|, with its sign."""
        best, ends = (0, 0), {self.right.high, self.right.low}
        powers = {1 << n for n in range(self.right.high.bit_length())}
        for right in sorted(powers | {-n for n in powers if -n >= self.right.low} | ends):
            if right == 0:
                continue
            left = int(abs(product) // abs(right)) * (1 if (product > 0) == (right > 0) else -1)
            left = min(max(left, self.left.low), self.left.high)
            if best[0] * best[1] == product:
                break
            if abs(left * right) > abs(best[0] * best[1]) and left * right * product > 0:
                best = left, right
        return best


class FunctionFailed(Exception):  # noqa: N818 - the error is its cause
    """The function that is revealed raised an exception, the cause of this one."""


@dataclass
class BlackBox:
    """A function of two vectors of `terms` numbers, or of one, and how often it was called.

    Vectors come in batches (N, terms) where the function takes these and gives (N) sums. A third
    argument without a default, or named `bias`, is a bias; batches have (N).
    """

    function: Callable[..., Any]
    terms: int
    operands: Operands
    probes: int = 0
    is_plain_sum: bool = False
    takes_bias: bool = False
    _takes_rows: bool | None = field(default=None, repr=False)

    def __post_init__(self) -> None:
        try:
            parameters = [*inspect.signature(self.function).parameters.values()]
        except (TypeError, ValueError):  # compiled code may have none
            return
        kinds = inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD
        needed = [p for p in parameters if p.default is p.empty and p.kind not in kinds]
        if len(needed) > 3 or any(p.kind is p.KEYWORD_ONLY for p in needed):
            raise InputError(
                f"the function needs the arguments {', '.join(p.name for p in needed)}",
                "It takes one vector, two, or two and a bias. Give the others defaults.",
            )
        variable = any(p.kind is p.VAR_POSITIONAL for p in parameters)
        self.is_plain_sum = len(needed) == 1 and not variable
        self.takes_bias = len(needed) == 3 or [p.name for p in parameters[2:3]] == ["bias"]

    @property
    def largest_product(self) -> int:
        """The largest magnitude of a product of two integers; of one, for a plain sum."""
        left, right = self.operands.left.largest, self.operands.right.largest
        return left if self.is_plain_sum else left * right

    @property
    def bias_type(self) -> np.dtype[Any]:
        """The type of a bias: that of the first vector, or of integers of at least 32 bits."""
        types = self.operands.left.dtype, self.operands.right.dtype
        return np.result_type(*types, np.int32) if self.operands.are_integers else types[0]

    def sums(self, left: Array, right: Array, bias: Array | None = None) -> Array:
        """Returns the sums (N) of the products of two arrays (N, terms); int64 or float64."""
        if bias is None:  # which adds nothing, not even to -0
            bias = np.full(len(left), 0 if self.operands.are_integers else -0.0)
        kinds = self.operands.left.dtype, self.operands.right.dtype, self.bias_type
        given = list(map(np.ascontiguousarray, (left, right, bias), kinds))
        given = given[: 1 if self.is_plain_sum else 2 + self.takes_bias]
        self.probes += len(left)
        if self._takes_rows is None and len(left) > 1:
            self._takes_rows = self._finds_rows(given)
        if self._takes_rows:
            return self._numbers(self._call(*given), (len(left),))
        rows = zip(*given, strict=True)
        return np.array([self._numbers(self._call(*row), ())[()] for row in rows])

    def _call(self, *given: Array) -> Array:
        try:
            with np.errstate(all="ignore"):  # probes overflow on purpose
                return np.asarray(self.function(*given))
        except Exception as error:
            raise FunctionFailed(repr(error)) from error

    def _finds_rows(self, given: list[Array]) -> bool:
        """Whether the function takes rows: a few are added alone and together."""
        few = 3 if self.terms != 3 else 2
        given = [np.resize(each, (few, *each.shape[1:])) for each in given]
        alone = [self._numbers(self._call(*row), ()) for row in zip(*given, strict=True)]
        try:
            together = self._call(*given)
        except FunctionFailed:
            return False
        return together.shape == (few,) and np.array_equal(together, np.array(alone))

    def _numbers(self, values: Array, shape: tuple[int, ...]) -> Array:
        if values.size != math.prod(shape) or values.dtype.kind not in "biuf":
            raise InputError(
                f"the function returns {values.dtype} of shape {values.shape}",
                "It takes two vectors and returns one number, their dot product.",
            )
        wide = np.int64 if self.operands.are_integers else np.float64
        is_whole = np.isfinite(values) & (values == np.trunc(values))
        if self.operands.are_integers and not np.all(is_whole):
            raise InputError("the function gives no integers for integers", "Name its --operands.")
        return values.astype(wide).reshape(shape)

    def of_products(self, products: Array) -> tuple[Array, Array]:
        """Returns the sums (N) of integers (N, terms), and the products that stand for them."""
        left, right = self.factors_of(products)
        return self.sums(left, right), left * right

    def factors_of(self, products: Array) -> tuple[Array, Array]:
        """Returns operands for integers (N, terms).

        Not every integer is a product of two operands: a smaller one takes its place.
        """
        if self.is_plain_sum:
            left = self.operands.left
            return np.clip(products, left.low, left.high), np.ones_like(products)
        values, places = np.unique(products, return_inverse=True)
        pairs = np.array([*map(self.operands.factors, values.tolist())], np.int64).reshape(-1, 2)
        left, right = pairs[places.reshape(products.shape)].transpose(-1, *range(products.ndim))
        return left, right


def draw(
    box: BlackBox, random: np.random.Generator, count: int, scale: tuple[float, float]
) -> tuple[Array, Array]:
    """Returns random operands (count, terms), whose products have some of `scale` bits.

    Some vectors are sparse, some are of one magnitude; in some, most products of a group cancel, so
    that a narrow register after a wide one shows what the wide one does.
    """
    sides = box.operands.left, box.operands.right
    bits = [float(np.log2(side.largest)) for side in sides]
    total = np.clip(random.uniform(*scale, count), 0, sum(bits))
    least = np.maximum(total - bits[1], 0)
    share = least + random.random(count) * (np.minimum(total, bits[0]) - least)
    if box.is_plain_sum:
        share = np.minimum(total, bits[0])
    shape, out = (count, box.terms), []
    signs = _signs(random, shape)
    first = 0 if sides[0].low < 0 else 1
    for place, (side, wide) in enumerate(zip(sides, (share, total - share), strict=True)):
        top = np.exp2(wide)[:, None]
        uniform = random.uniform(0, top + 1, shape)
        values = np.where(random.random((count, 1)) < 0.3, top, uniform).astype(np.int64)
        values *= np.where(random.random((count, 1)) < 0.2, random.random(shape) < 0.3, True)
        if place == first:
            values *= signs
        elif side.low < 0 and random.random() < 0.5:
            values *= random.choice([-1, 1], (count, 1))
        out.append(np.clip(values, side.low, side.high))
    if box.is_plain_sum:
        out[1] = np.ones(shape, np.int64)
    if sides[first].low < 0:
        for row in range(count - count // 3, count, _ALIKE):
            _cancel([each[row : row + _ALIKE] for each in out], first, random)
        out = [np.clip(each, side.low, side.high) for each, side in zip(out, sides, strict=True)]
    return out[0], out[1]


def _cancel(operands: list[Array], signed: int, random: np.random.Generator) -> None:
    """Makes some terms of one stride multiples of a product that add up to 0 or little.

    The other products of these vectors are small, in most of them.
    """
    own, other = operands[signed], operands[1 - signed]
    rows, terms = own.shape
    stride = int(random.choice([1, 1, 1, 2, 4, 8, int(random.integers(1, terms + 1))]))
    size = min(int(2 ** random.uniform(1, 6.5)), terms)
    first = int(random.integers(0, max(terms - size * stride, 0) + 1))
    places = np.arange(first, terms, stride)[:size]
    unit, fixed = np.abs(own[:, places[:1]]), other[:, places[:1]].copy()
    if random.random() < 0.5:
        unit, fixed = (
            np.exp2(np.floor(np.log2(np.maximum(np.abs(each), 1)))).astype(np.int64)
            for each in (unit, fixed)
        )
    if random.random() < 0.8:
        own[:] = np.sign(own) * random.integers(0, 3, own.shape)
        other[:] = np.sign(other)
    most = int(random.choice([1, 3]))
    factors = random.integers(-most, most + 1, (rows, len(places)))
    factors[:, random.integers(0, len(places))] -= factors.sum(1)
    own[:, places], other[:, places] = factors * unit, fixed


def _signs(random: np.random.Generator, shape: tuple[int, int]) -> Array:
    """Returns signs: at random, in runs, with one change, by the lane of a term, or constant."""
    count, terms = shape
    places, one = np.arange(terms)[None], (count, 1)
    spans = 1 << random.integers(0, max(terms.bit_length() - 1, 1), one)
    lanes = random.integers(2, max(terms // 2, 2) + 1, one)
    by_lane = np.take_along_axis(
        random.choice([-1, 1], shape), places % np.minimum(lanes, terms), 1
    )
    patterns = (
        random.choice([-1, 1], shape), places // spans % 2 * 2 - 1,
        np.where(places < random.integers(1, terms + 1, one), 1, -1), by_lane, np.ones(shape, int),
    )  # fmt: skip
    kind = random.choice(len(patterns), one, p=[0.35, 0.2, 0.15, 0.2, 0.1])
    return np.asarray(np.choose(kind, patterns) * random.choice([-1, 1], one))


_ROUNDINGS = {"rne": "to nearest", "rz": "towards 0", "floor": "down", "sr": "at random"}


@dataclass(frozen=True, slots=True)
class Finding:
    """A rule that `vectors` random pairs verified, with the fields of `Revealed`."""

    text: str
    spec: str | None
    facts: Mapping[str, Any]
    tree: str
    vectors: int = LEAST_RESULTS
    note: str = ""

    @classmethod
    def of(
        cls, accumulator: AnyAccumulator, count: int, note: str = "",
        result: float_accumulator.FloatFormat | None = None,
    ) -> "Finding":  # fmt: skip
        """Returns the finding that `count` terms are added as in an accumulator.

        The sum is rounded to `result` at last; None keeps it.
        """
        tree = ""
        if isinstance(accumulator, Accumulator) and not accumulator.order.reorders:
            tree = drawn(branches_of(accumulator.order, orders.Terms(count)), count)
        text, known = words(accumulator), facts(accumulator)
        if result is not None:
            text, known["result"] = f"{text}; the last sum is rounded to {result}", str(result)
        return cls(text, str(accumulator), known, tree, note=note)

    @classmethod
    def exact(cls, accumulator: Accumulator) -> "Finding":
        """Returns the finding that sums stay within an accumulator, so that no order shows."""
        text = f"no sum of these operands leaves {accumulator.bits} bits, so no order shows"
        text = "; ".join([text, *_product_words(accumulator)])
        return cls(text, str(accumulator), {**facts(accumulator), "exact": True}, "")


def words(accumulator: AnyAccumulator) -> str:
    """Returns what an accumulator does, in a sentence without its end."""
    match accumulator:
        case Accumulator():
            register = _register_words(Register(accumulator.bits, accumulator.overflow))
            text = f"{order_words(accumulator.order)}, in a register of {register}"
            return "; ".join([text, *_product_words(accumulator)])
        case float_accumulator.FloatAccumulator():
            order = order_words(accumulator.order)
            if accumulator.chunk:
                order = f"in chunks of {plural(accumulator.chunk, 'term')}, then the chunks"
            product = "multiplied and added in one rounding (FMA)"
            if not accumulator.fused:
                product = f"multiplied in {accumulator.product or accumulator.format}, then added"
            ends = f"in {accumulator.format}, rounded {_ROUNDINGS[accumulator.rounding.name]}"
            return f"{order}, {product}, {ends}" + ", saturating" * accumulator.saturates
        case BlockFma():
            rounding = "towards 0" if accumulator.rounding.name == "rz" else "to nearest"
            text = (
                f"{plural(accumulator.length, 'product')} at once, aligned to "
                f"{plural(accumulator.fraction, 'bit')} of fraction ({accumulator.rule}); their "
                f"sum is rounded {rounding} to {accumulator.out}"
            )
            most = accumulator.promote
            return text if most is None else f"{text}, those of {most} are added in fp32"
        case _:
            return str(accumulator)


def facts(accumulator: AnyAccumulator) -> dict[str, Any]:
    """Returns the parts of an accumulator by name, as plain data."""
    known: dict[str, Any] = {"kind": accumulator.kind}
    if isinstance(accumulator, Accumulator):
        known |= accumulator.to_plain()
    names = ", ".join(hardware.names(accumulator))
    return known | ({"preset": names} if names else {})


def _product_words(accumulator: Accumulator) -> Iterator[str]:
    """Yields what happens to products before they are added."""
    if accumulator.product_shift:
        lost = plural(accumulator.product_shift, "low bit")
        yield f"products lose {lost} ({accumulator.product_rounding})"
    if accumulator.product_bits is not None:
        limit = Register(accumulator.product_bits, accumulator.overflow)
        yield f"products have {_register_words(limit)}"


def _register_words(register: Register) -> str:
    does = {"saturate": "saturates", "symmetric": "saturates symmetrically", "wrap": "wraps",
            "zero": "becomes 0 beyond its range"}[register.overflow]  # fmt: skip
    return f"{register.bits} bits that {does}"


def order_words(order: orders.Order) -> str:
    """Returns how an order adds terms."""
    match order:
        case orders.Sequential():
            return "one after the other"
        case orders.Chunked():
            return f"in chunks of {plural(order.size, 'term')}, then the chunks"
        case orders.Lanes():
            return f"in {plural(order.size, 'lane')}, then the lanes"
        case orders.Tree():
            return "in pairs, then pairs of pairs, and so on"
        case orders.Sorted():
            return "against the sign of the sum so far"
        case orders.Maddubs():
            return (
                "in pairs of 16 bits that saturate, then in "
                f"{plural(order.size, 'lane')}, then the lanes"
            )
        case orders.Tiles():
            spill = f", narrowed {_level_words(order.spill)}" if order.spill else ""
            return f"{', then '.join([*map(_level_words, order.levels), 'the last sums'])}{spill}"
        case _:
            return str(order)


def _level_words(level: orders.Level) -> str:
    size = "all" if level.size is None else str(level.size)
    apart = f" that are {level.stride} apart" if level.stride > 1 else ""
    where = f" in {_register_words(level.register)}" if level.register else ""
    where = f" in {level.float_register}" if level.float_register else where
    lost = f", without {plural(level.shift.bits, 'low bit')}" if level.shift else ""
    return f"in tiles of {size}{apart}{where}{lost}"
