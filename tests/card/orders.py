"""The order in which a product adds its terms, found by probes of the product itself.

As in FPRev (arXiv 2411.00442): all terms are small but two, ±large. What is added to one of these
is swallowed; what is added after they have met counts. Sums of more than two terms at once, as
tensor cores add them, are nodes of the tree with many leaves.

An order is plain data: `["chain", start, [[first, last, step, width], ...]]` adds blocks of `width`
terms, of first, first + step and so on below last, one after the other to the order `start` (None
is 0), and `["join", [order, ...]]` adds sums.
"""

import time
from itertools import pairwise

import numpy as np
import torch

LARGE = {
    "fp16": (15, -22, 0, 0), "bf16": (100, 0, 0, 0), "tf32": (100, 0, 0, 0),
    "fp32": (100, 0, 0, 0), "fp8-e4m3": (8, -9, 8, -9), "fp8-e5m2": (15, -16, 8, -9),
    "fp8-e4m3/fp8-e5m2": (8, -9, 15, -16), "fp8-e5m2/fp8-e4m3": (15, -16, 8, -9),
}  # fmt: skip
"""Exponents of the large term and of a small one, in the row; the same in the column."""
_EXACT = {"fp16": 1 << 10, "bf16": 1 << 8, "fp32": 1 << 20}
"""Small terms that a format counts exactly."""
_MOST = 1 << 15
"""Terms, times the probes of one pair of them: an order takes some three times as many probes."""
_ROWS = 64
"""Probes of one product: those of one tile of a kernel."""


class NoOrder(Exception):  # noqa: N818
    """Probes tell no order: the message says why."""


class Probes:
    """Probes of a product by torch (see `torch_products`): rows of one product, by the dozen."""

    def __init__(self, product, seconds):
        self.product, self.case, self.count = product, product.case, 0
        self.end = time.monotonic() + seconds
        powers = LARGE[self.case.dtype]
        self.large, self.small = ([2.0 ** powers[at], 2.0 ** powers[at + 2]] for at in (0, 1))
        self.is_diagonal = self.large[1] != self.small[1]
        sizes = (self.case.m, self.case.n)
        self.side = int(np.argmax(sizes))  # the operand whose rows are probes
        self.rows = min(_ROWS, min(sizes) if self.is_diagonal else max(sizes))

    def sums(self, left, right):
        """Returns the results of rows of operands (P, K), float32; one is None if it is 1."""
        found = []
        for low in range(0, len(left), self.rows):
            if time.monotonic() > self.end:
                raise NoOrder("the time for probes is over")
            some = [None if side is None else side[low : low + self.rows] for side in (left, right)]
            found.append(self._product(*some))
        self.count += len(left)
        return torch.cat(found).float().cpu().numpy()

    def _product(self, left, right):
        case, size = self.case, len(left)
        device = left.device
        sides = [torch.zeros((rows, case.k), device=device) for rows in (case.m, case.n)]
        if right is not None:
            for side, rows in zip(sides, (left, right), strict=True):
                side[:size] = rows
            return self.product(*sides)[:size, :size].diagonal()
        sides[self.side][:size] = left
        sides[1 - self.side][:] = 1
        result = self.product(*sides)
        return result[:size, 0] if self.side == 0 else result[0, :size]

    def sizes(self, pairs):
        """Returns how many terms are added until both terms of each pair (P, 2) have met."""
        terms, device = self.case.k, self.product.device
        pairs = torch.as_tensor(np.asarray(pairs), device=device)
        counted = torch.zeros(len(pairs), dtype=torch.float64)
        index = torch.arange(len(pairs), device=device)
        chunk = _EXACT[self.case.out]
        for first in range(0, terms, chunk):
            sides = []
            for large, small, sign in zip(self.large, self.small, (-1, 1), strict=True):
                rows = torch.zeros((len(pairs), terms), device=device)
                rows[:, first : first + chunk] = small
                rows[index, pairs[:, 0]] = large
                rows[index, pairs[:, 1]] = sign * large
                sides.append(rows)
            found = self.sums(sides[0], sides[1] if self.is_diagonal else None)
            counted += torch.from_numpy(found / (self.small[0] * self.small[1])).double()
        sizes = terms - counted.numpy()
        bad = ~((sizes >= 2) & (sizes <= terms) & (sizes == np.rint(sizes)))
        if bad.any():
            at = int(np.argmax(bad))
            raise NoOrder(f"terms {pairs[at].tolist()} of {terms} give {sizes[at]}")
        return sizes.astype(int)

    def order(self):
        """Returns the order of all terms. Raises NoOrder."""
        if -(-self.case.k // _EXACT[self.case.out]) * self.case.k > _MOST:
            raise NoOrder(f"{self.case.out} counts too few terms for probes of {self.case.k}")
        return self._built(list(range(self.case.k)))

    def packed_order(self):
        """Returns the order as it is kept. Raises NoOrder."""
        return packed(self.order())

    def _built(self, members):
        if len(members) == 1:
            return members[0]
        levels = self._levels(members)
        single = self._are_single(levels)
        sums, held = members[0], 1
        for (size, others), are_single in zip(levels, single, strict=True):
            held += len(others)
            if held != size:
                raise NoOrder(f"{held} terms meet in a sum of {size}")
            parts = [[each] for each in others] if are_single else self._parts(others, size)
            sums = _added(sums, [self._built(part) for part in parts])
        return sums

    def _levels(self, members):
        """Returns the terms that meet the first at each size of a sum."""
        sizes = self.sizes([(members[0], other) for other in members[1:]])
        found = {}
        for other, size in zip(members[1:], sizes, strict=True):
            found.setdefault(int(size), []).append(other)
        return sorted(found.items())

    def _are_single(self, levels):
        """Returns of each level whether its terms are added one by one: neighbours meet there."""
        pairs = [
            [(others[0], other) for other in others[1:]] + list(pairwise(others[1:]))
            for _, others in levels
        ]
        every = [pair for some in pairs for pair in some]
        found = iter(self.sizes(every).tolist() if every else [])
        met = [[next(found) for _ in some] for some in pairs]
        return [set(some) <= {size} for some, (size, _) in zip(met, levels, strict=True)]

    def _parts(self, members, size):
        """Returns the sums that these terms form before they meet in a sum of `size`."""
        near = self.sizes([(members[0], other) for other in members[1:]]) if members[1:] else []
        first = [members[0]]
        first += [each for each, met in zip(members[1:], near, strict=True) if met < size]
        others = [each for each in members if each not in set(first)]
        return [first, *(self._parts(others, size) if others else [])]

    def profile(self):
        """Returns what is known without an order: sizes of pairs with term 0, and neighbours."""
        last = range(1, self.case.k)
        found = {}
        pairs_of = {"with 0": [(0, k) for k in last], "next": [(k - 1, k) for k in last]}
        for name, pairs in pairs_of.items():
            try:
                found[name] = runs(self.sizes(pairs).tolist())
            except NoOrder as reason:
                found[name] = str(reason)
        return found

    def kept_bits(self):
        """Returns for powers 0, 1, ... whether a term survives ± 2^power times it, which follow."""
        top = int(np.log2(self.large[0] / self.small[0] * self.large[1] / self.small[1]))
        powers = np.arange(min(top, 40) + 1)
        first = powers - powers // 2 if self.is_diagonal else powers
        sides = [torch.zeros((len(powers), self.case.k)) for _ in range(2)]
        for side, small, own, sign in zip(
            sides, self.small, (first, powers - first), (-1, 1), strict=True
        ):
            large = torch.from_numpy(small * 2.0**own).float()
            side[:, 0], side[:, 1], side[:, 2] = small, large, sign * large
        sides = [side.to(self.product.device) for side in sides]
        found = self.sums(sides[0], sides[1] if self.is_diagonal else None)
        return "".join("1" if each else "0" for each in found)


def _added(sums, parts):
    """Returns the node in which `parts` are added to `sums`: terms (ints) and nodes."""
    nodes = [each for each in (sums, *parts) if isinstance(each, list)]
    leaves = sorted(each for each in (sums, *parts) if isinstance(each, int))
    if not leaves:
        return ["join", nodes]
    start = None
    if len(nodes) > 1:
        raise NoOrder(f"{len(leaves)} terms and {len(nodes)} sums are added at once")
    if nodes and nodes[0][0] == "chain":
        _, start, blocks = nodes[0]
        return ["chain", start, [*blocks, leaves]]
    if nodes:
        start = nodes[0]
    return ["chain", start, [leaves]]


def packed(order):
    """Returns an order whose blocks are written as ranges, for keeping."""
    if isinstance(order, int):
        return ["chain", None, [[order, order + 1, 1, 1]]]
    if order[0] == "join":
        return ["join", [packed(each) for each in order[1]]]
    ranges = []  # of terms one after the other, and the width of their blocks
    for block in order[2]:
        if ranges and ranges[-1][1] == len(block) and _is_even([*ranges[-1][0], *block]):
            ranges[-1][0].extend(block)
        else:
            ranges.append((list(block), len(block)))
    plain = [
        [terms[0], terms[-1] + 1, terms[1] - terms[0] if len(terms) > 1 else 1, width]
        if _is_even(terms) else [-1, *terms]
        for terms, width in ranges
    ]  # fmt: skip
    return ["chain", None if order[1] is None else packed(order[1]), plain]


def _is_even(terms):
    gaps = set(np.diff(terms).tolist())
    return not gaps or (len(gaps) == 1 and min(gaps) > 0)


def blocks_of(ranges):
    """Returns the blocks of terms that ranges stand for."""
    found = []
    for each in ranges:
        if each[0] == -1:
            found.append(each[1:])
            continue
        first, last, step, width = each
        terms = list(range(first, last, step))
        found += [terms[low : low + width] for low in range(0, len(terms), width)]
    return found


def runs(values):
    """Returns values as [value, how often it follows itself]."""
    found = []
    for value in values:
        if found and found[-1][0] == value:
            found[-1][1] += 1
        else:
            found.append([value, 1])
    return found


def describe(order):
    """Returns an order in words."""
    if order[0] == "join":
        parts = in_turn(order)
        widths = ", ".join(f"{n} x ({w})" for w, n in runs(list(map(describe, parts))))
        return f"{len(parts)} sums, joined in turn: {widths}"
    blocks = blocks_of(order[2])
    widths = "+".join(f"{n} x {w}" for w, n in runs([len(block) for block in blocks]))
    return widths if order[1] is None else f"{describe(order[1])}, then {widths}"


def in_turn(order):
    """Returns the sums that an order joins one after the other."""
    if order[0] != "join":
        return [order]
    return [*in_turn(order[1][0]), *order[1][1:]]
