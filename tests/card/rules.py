"""Rules of a product: the order of its terms, the arithmetic of a block, and what follows the sum.

A rule is verified against results of a device, bit by bit, by the project's own emulation.
"""

import json
from dataclasses import asdict, dataclass, replace
from itertools import product

import numpy as np

from tests.card.orders import blocks_of, describe, in_turn
from tests.card.torch_products import NUMPY
from tracer.accumulators.floats import compiled_sums
from tracer.accumulators.hardware.matrix_cores import NVIDIA
from tracer.accumulators.spec.block_fma import BlockFma, block_fma
from tracer.accumulators.spec.float_accumulator import (
    FloatAccumulator,
    FloatRounding,
    float_accumulator,
    float_format,
)

PRESET = "tc:h100"
_FUSED = FloatAccumulator(float_format("fp32"), fused=True)
_FEW = 12
"""Rows and columns that a rule meets first."""


@dataclass(frozen=True)
class Rule:
    """How a product adds its terms: see `orders` for the order, and `accumulate` for the rest.

    `block` is an accumulator as text. `partial` is the format to which sums are rounded before they
    are joined, `joined` that of joined sums (both None: fp32). `operands` says how float32 becomes
    tf32: `rne` to nearest, `rz` towards 0. The bias is the `start` of the sum,
    is added `after` it in fp32, or `twice` rounded. `scales` multiply the sum: their `product`, or
    those of `rows` or `columns` first.
    """

    order: list
    block: str
    partial: str | None = None
    joined: str | None = None
    bias: str | None = None
    scales: str | None = None
    operands: str | None = None

    def plain(self):
        """Returns it as JSON holds it; the order is text, or it would take a line a number."""
        found = {key: value for key, value in asdict(self).items() if value is not None}
        return found | {"order": json.dumps(self.order, separators=(",", ":"))}

    @classmethod
    def read(cls, plain):
        """Returns the rule that `plain` gave."""
        return cls(**{**plain, "order": json.loads(plain["order"])})

    def results(self, case, rows, columns):
        """Returns the results (R, C) of these rows and columns of a case, float32."""
        left, right, bias = case.operands()
        scales = case.scales()
        if scales is not None:
            scales = [each if len(each) == 1 else each[at] for each, at in
                      zip(scales, (rows, columns), strict=True)]  # fmt: skip
        bias = bias[columns] if case.has_bias else None
        return self.of(left[rows], right[columns], case.out, bias, scales)

    def of(self, left, right, out, bias=None, scales=None):
        """Returns the results of rows (R, K) and rows (C, K) in the format `out`, float32."""
        start = None
        left, right = (in_tf32(side, self.operands) for side in (left, right))
        if self.bias == "start":
            start = np.broadcast_to(bias, (len(left), len(right)))
        with np.errstate(all="ignore"):
            sums = self._sums(self.order, left, right, start)
            if scales is not None:
                rows, columns = scales[0][:, None], scales[1][None, :]
                match self.scales:
                    case "rows":
                        sums = sums * rows * columns
                    case "columns":
                        sums = sums * columns * rows
                    case _:
                        sums = sums * (rows * columns)
            if self.bias == "twice":
                sums = rounded(sums, out)
            if self.bias in ("after", "twice"):
                sums = sums + bias
            return rounded(sums, out)

    def _sums(self, order, left, right, start):
        if order[0] == "chain":
            if order[1] is not None:
                start = self._sums(order[1], left, right, start)
            return self._chain(blocks_of(order[2]), left, right, start)
        parts = [
            rounded(self._sums(each, left, right, start if at == 0 else None), self.partial)
            for at, each in enumerate(order[1])
        ]
        total = parts[0]
        for part in parts[1:]:
            total = rounded(total + part, self.joined)
        return total

    def _chain(self, blocks, left, right, start):
        accumulator = read_accumulator(self.block)
        if isinstance(accumulator, BlockFma):
            length = max(accumulator.length, *map(len, blocks))
            accumulator = replace(accumulator, length=length)
            blocks = [[*block, *[-1] * (length - len(block))] for block in blocks]
        order = np.concatenate(blocks)
        left, right = (np.pad(side, ((0, 0), (0, 1)))[:, order] for side in (left, right))
        start = np.zeros((1, 1)) if start is None else start.astype(np.float64)
        if isinstance(accumulator, BlockFma):
            state = compiled_sums.blocks(left, right.T, start, accumulator)
        else:
            state = compiled_sums.sequential(left, right.T, start, accumulator, 0, None)
        return state.values.astype(np.float32)

    def spec(self, case):
        """Returns the accumulator that `--accumulator` takes for these sums; None if there is none.

        Sums that are joined one after the other are those of a promotion.
        """
        accumulator = read_accumulator(self.block)
        parts = _parts(self.order)
        if parts is None or self.partial or self.joined:
            return None
        terms = [term for part in parts for block in part for term in block]
        if terms != list(range(len(terms))):
            return None
        if not isinstance(accumulator, BlockFma):
            return self.block if len(parts) == 1 else None
        sizes = [sum(map(len, part)) for part in parts]
        widths = {len(block) for part in parts for block in part[:-1]}
        if widths - {accumulator.length} or len(set(sizes[:-1])) > 1 or sizes[-1] > sizes[0]:
            return None
        if len(parts) == 1:
            own = NVIDIA[PRESET].get(case.formats[0])
            return PRESET if own == accumulator else self.block
        if sizes[0] % accumulator.length:
            return None
        return str(replace(accumulator, promote=sizes[0]))

    def text(self, case):
        """Returns the rule in words."""
        own = str(NVIDIA[PRESET].get(case.formats[0]))
        block = f"{PRESET} ({self.block})" if own == self.block else self.block
        words = [f"{describe(self.order)}, {block}"]
        words += [f"sums are rounded to {self.partial} before they are joined"] * bool(self.partial)
        words += [f"each joined sum is rounded to {self.joined}"] * bool(self.joined)
        words += [f"the bias: {self.bias}"] * bool(self.bias)
        words += [f"scales: {self.scales}"] * bool(self.scales)
        words += [f"operands in tf32: {self.operands}"] * bool(self.operands)
        return "; ".join([*words, f"rounded to {case.out}"])


def read_accumulator(text):
    """Returns the accumulator of a block."""
    return block_fma(text) if text.startswith("bfma") else float_accumulator(text)


def rounded(sums, form):
    """Returns sums in a format, to nearest, float32."""
    if form in (None, "fp32"):
        return np.asarray(sums, np.float32)
    return np.asarray(sums, np.float32).astype(NUMPY[form]).astype(np.float32)


def in_tf32(numbers, how):
    """Returns float32 in tf32, to nearest (`rne`) or towards 0 (`rz`); as it is for None."""
    if how is None:
        return numbers
    words = numbers.view(np.uint32)
    if how == "rne":
        words = words + np.uint32(0xFFF) + (words >> 13 & 1)
    return (words & np.uint32(0xFFFFE000)).view(np.float32)


def _parts(order):
    """Returns the chains of sums that are joined one after the other; None for another order."""
    parts = in_turn(order)
    if any(each[0] != "chain" or each[1] is not None for each in parts):
        return None
    return [blocks_of(each[2]) for each in parts]


def chain(terms, width):
    """Returns the order of blocks of `width`, one after the other."""
    return ["chain", None, [[0, terms, 1, width]]]


def split(terms, width, size):
    """Returns the order of sums of `size` terms, each of blocks, joined one after the other."""
    order = None
    for first in range(0, terms, size):
        part = ["chain", None, [[first, min(first + size, terms), 1, width]]]
        order = part if order is None else ["join", [order, part]]
    return order


def find(case, order, rows, columns, want):
    """Returns the rule that explains results (R, C) and the share of them; the best if none does.

    `order` is None where probes told none: usual ones are tried.
    """
    few = slice(0, _FEW), slice(0, _FEW)
    best, best_share = None, -1.0
    for rule in candidates(case, order):
        got = rule.results(case, rows[few[0]], columns[few[1]])
        share = np.mean(same(got, want[few]))
        if share == 1:
            share = np.mean(same(rule.results(case, rows, columns), want))
            if share == 1:
                return rule, 1.0
        if share > best_share:
            best, best_share = rule, float(share)
    if best is not None:
        best_share = float(np.mean(same(best.results(case, rows, columns), want)))
    return best, best_share


def same(first, second):
    """Returns where two arrays of float32 have the same bits; NaN equals NaN."""
    return (first.view(np.uint32) == second.view(np.uint32)) | (np.isnan(first) & np.isnan(second))


def candidates(case, order):
    """Yields rules, the most likely first."""
    biases = ("after", "twice", "start") if case.has_bias else (None,)
    scales = (None,)
    if case.scales() is not None and not all((each == 1).all() for each in case.scales()):
        scales = ("product", "rows", "columns")
    for block in _blocks(case, order):
        casts = ("rne", "rz") if case.dtype == "tf32" else ()
        if not (casts and block.startswith("bfma")):  # a kernel without tensor cores keeps float32
            casts = (*casts, None)
        for one in [order] if order is not None else _orders(case, block):
            forms = (None, case.out) if case.out != "fp32" else (None,)
            joins = product(forms, forms) if one[0] == "join" or one[1] else [(None, None)]
            for (partial, joined), bias, scale, cast in product(joins, biases, scales, casts):
                yield Rule(one, block, partial, joined, bias, scale, cast)


def _orders(case, block):
    accumulator = read_accumulator(block)
    width = accumulator.length if isinstance(accumulator, BlockFma) else 1
    yield chain(case.k, width)
    parts, units = range(2, 33), (4, 8, 32, 64, 128)
    sizes = {-(-case.k // (n * unit)) * unit for n, unit in product(parts, units)} | {128}
    for size in sorted(sizes, reverse=True):
        if size < case.k and size % min(width, size) == 0:
            yield split(case.k, min(width, size), size)


def _blocks(case, order):
    """Yields the arithmetic of a block: tensor cores by preset, then others, or one by one."""
    if order is not None and _width(order) <= 2:
        yield from (str(_FUSED), "fp32")
        return
    first, second = case.formats
    own = NVIDIA[PRESET].get(first)
    if own is None:
        yield from (str(_FUSED), "fp32")
        return
    if first != second:
        own = replace(own, operands=float_format("e5m3"))
    yield str(own)
    if order is None:
        return
    for other in ("tc:hmma-fp8", "tc:b200", "tc:a100"):
        if first == second and first in NVIDIA[other]:
            yield str(NVIDIA[other][first])
    roundings = FloatRounding("rz"), FloatRounding()
    for fraction, out, rounding in product(range(12, 28), ("fp32", "e8m13"), roundings):
        yield str(replace(own, fraction=fraction, out=float_format(out), rounding=rounding))


def _width(order):
    if order[0] == "join":
        return max(map(_width, order[1]))
    own = max(map(len, blocks_of(order[2])))
    return own if order[1] is None else max(own, _width(order[1]))
