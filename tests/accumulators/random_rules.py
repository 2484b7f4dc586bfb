"""Random accumulators: what is compiled for them is alike in a group of nodes, the rest differs.

Compiled code depends on what a sum does at each step: on types, overflow modes, and the rounding of
products and of the innermost register. Sizes, widths, orders and loops are data.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np

from tracer.accumulators.spec import Overflow
from tracer.accumulators.spec.orders import Stage, Terms, named
from tracer.errors import UsageError

LOOPS = ("ic", "kz", "ky", "kx")
OVERFLOWS = ("saturate", "saturate", "symmetric", "wrap", "zero", "error")
INNER = ("saturate", "symmetric", "wrap", "zero")
ROUNDINGS = ("half-even", "half-away", "half-up", "floor", "truncate")
TYPES = ("int8", "uint8", "int8", "uint8", "int16", "uint16")
FORMS = ("Gemm", "Gemm", "Conv", "Conv", "Conv", "ConvTranspose", "MatMulInteger", "ConvInteger",
         "fixed Gemm", "fixed Conv", "shared Gemm", "shared MatMul", "shared Conv", "shared Conv",
         "scaled Gemm", "scaled MatMul")  # fmt: skip
"""Operators; those of fixed point, of blocks that share exponents, and of blocks with scales."""
ROWS = (1, 3, 4)
"""Output channels of a group; few, since each size of a tile is compiled."""
ALIKE, SHAPED_ALIKE = 500, 50
"""Nodes that follow each other with the same rules, and with the same operator and shapes."""
FAMILIES = ("plain", "grouped", "inner", "inner", "shifted")
"""Orders: without groups, without registers of their own, with innermost ones, and with shifts."""


@dataclass(frozen=True)
class Kind:
    """What nodes that follow each other have in common; `shapes` is a seed."""

    form: str
    shapes: tuple[int, int]
    types: tuple[str, str]
    reach: int
    rows: int
    overflow: Overflow
    family: str
    inner: str
    shift: tuple[int, str]
    bias: str
    has_product_bits: bool
    product_shift: int
    product_rounding: str

    @classmethod
    def drawn(cls, seed: int, number: int) -> Kind:
        random = np.random.default_rng((seed, number // ALIKE))
        shapes = (seed, number // SHAPED_ALIKE)

        def one(choices: tuple[Any, ...], random: np.random.Generator = random) -> Any:
            return choices[random.integers(len(choices))]

        shift = int(random.integers(1, 9)) if random.random() < 0.15 else 0
        return cls(
            one(FORMS, np.random.default_rng(shapes)), shapes, (one(TYPES), one(TYPES)),
            one((3, 100, 1 << 16)), one(ROWS), one(OVERFLOWS), one(FAMILIES), one(INNER),
            (int(random.integers(1, 7)), one(ROUNDINGS)), one(("first", "first", "last")),
            random.random() < 0.2, shift, one((*ROUNDINGS, f"stochastic({random.integers(99)})")),
        )  # fmt: skip

    def suits(self, stages: tuple[Stage, ...]) -> bool:
        """Whether what is compiled for an order is what is compiled for the kind, or nothing."""
        first, *others = stages
        register, shift = first.register, first.shift
        if register is None or register.unsigned or any(s.register or s.spill for s in others):
            return True
        if shift is not None and shift.rounding == "stochastic":
            return True
        return register.overflow == self.inner and (
            shift is None or (shift.bits, shift.rounding) == self.shift
        )


def words(kind: Kind, random: np.random.Generator, largest: int, terms: Terms) -> dict[str, Any]:
    """The properties of an accumulator for sums of products of at most `largest`.

    Most are about as wide as the sums, where most is decided.
    """
    size = np.log2(largest + 1)
    near = size + np.log2(terms.count) / 2 + random.uniform(-4, 4)
    width = near if random.random() < 0.85 else random.integers(2, 63)
    conventions = ["twos-complement", "magnitude", "unsigned"][: 2 + (kind.overflow != "symmetric")]
    chances = [0.6, 0.25, 0.15] if len(conventions) == 3 else [0.7, 0.3]
    products = int(np.clip(size + random.uniform(-4, 3), 2, 62)) if kind.has_product_bits else None
    return {
        "bits": int(np.clip(width, 2, 62)), "overflow": kind.overflow,
        "order": order(kind, random, near, terms), "product_bits": products, "bias": kind.bias,
        "convention": str(random.choice(conventions, p=chances)),
        "product_shift": kind.product_shift, "product_rounding": kind.product_rounding,
    }  # fmt: skip


def order(kind: Kind, random: np.random.Generator, near: float, terms: Terms) -> str:
    """An order of the family of the kind; of any, for a third of the nodes."""
    any_rules = random.random() < 1 / 3
    while True:
        spelled = _Words(kind, random, near, any_rules).order()
        with suppress(UsageError):  # not all of what can be spelled can be added
            if kind.suits(named(spelled).stages(terms)):
                return spelled


@dataclass(frozen=True)
class _Words:
    kind: Kind
    random: np.random.Generator
    near: float
    any_rules: bool

    def order(self) -> str:
        if self.any_rules:
            choice = int(self.random.integers(9))
            if choice == 0:
                return "sorted"
            return (
                self.nest() if choice < 4 else self.positionwise() if choice < 5 else self.tiles()
            )
        if self.kind.family == "plain":
            return str(self.random.choice(["sequential", "nest(ic,kz,ky,kx)", "nest"]))
        if self.kind.family == "grouped":
            choice = int(self.random.integers(8))
            plain = ("channelwise", f"chunked({self.size()})", f"lanes({self.size()})", "tree")
            if choice < len(plain):
                return plain[choice]
        elif self.random.random() < 0.1 and self.kind.inner == "saturate":
            return str(self.random.choice(["maddubs", f"maddubs({self.size()})"]))
        makes = [self.tiles, self.nest, self.positionwise]
        return makes[self.random.integers(3)]()

    def size(self) -> int:
        return int(self.random.choice([1, 2, 3, 4, 5, 8, 9, 16, 18, 33]))

    def first(self) -> str:
        """The register of the innermost sums."""
        if self.any_rules:
            return self.any_register()
        if self.kind.family in ("plain", "grouped"):
            return ""
        bits, rule = self.kind.shift
        shift = f":>>{bits}:{rule}" if self.kind.family == "shifted" else ""
        return f":{self.bits()}:{self.kind.inner}{shift}"

    def any_register(self) -> str:
        if self.random.random() < 0.4:
            return ""
        overflow, sign = str(self.random.choice(INNER)), ""
        if overflow != "symmetric" and self.random.random() < 0.2:
            sign = "u"
        return f":{sign}{self.bits()}:{overflow}{self.any_shift()}"

    def any_shift(self) -> str:
        if self.random.random() < 0.6:
            return ""
        rules = (*ROUNDINGS, f"stochastic({self.random.integers(99)})")
        return f":>>{self.random.integers(1, 6)}:{self.random.choice(rules)}"

    def bits(self) -> int:
        """A width about that of the sums."""
        return int(np.clip(self.near + self.random.uniform(-5, 3), 2, 62))

    def tiles(self) -> str:
        levels = [self.level(self.first())]
        for _ in range(self.random.integers(0, 3)):
            levels.append(self.level(self.any_register() if self.any_rules else ""))
        if self.any_rules and self.random.random() < 0.4:
            overflow = self.random.choice(INNER)
            size = self.random.choice(["all", str(self.size())])
            spill = f"spill={size}:{self.bits()}:{overflow}{self.any_shift()}"
            levels = [*levels[: self.random.integers(len(levels) + 1)], spill]
        return f"tiles({','.join(levels)})"

    def level(self, register: str) -> str:
        size = "all" if self.random.random() < 0.1 else str(self.size())
        stride = f"x{self.random.integers(2, 9)}" if self.random.random() < 0.2 else ""
        return f"{size}{stride}{register}"

    def positionwise(self) -> str:
        size = [str(self.size())] if self.random.random() < 0.5 else []
        inner = [self.inner_order()] if self.any_rules or self.random.random() < 0.5 else []
        return f"positionwise({','.join([*size, *inner])})" if size or inner else "positionwise"

    def inner_order(self) -> str:
        if not self.any_rules and self.kind.family in ("inner", "shifted"):
            return self.tiles()
        orders = ["tree", f"lanes({self.size()})", f"chunked({self.size()})", self.tiles()]
        return orders[self.random.integers(4)]

    def nest(self) -> str:
        """Loops with axes twice, sizes, registers, parallel loops and an inner order."""
        random = self.random
        if not self.any_rules and self.kind.family == "plain":
            return f"nest({','.join(random.permutation(LOOPS))})"
        names = random.permutation([*LOOPS, *random.choice(LOOPS, random.integers(0, 4))]).tolist()
        unsized = {name: random.choice([k for k, n in enumerate(names) if n == name])
                   for name in LOOPS}  # fmt: skip
        has_inner = random.random() < 0.25
        loops = []
        for k, name in enumerate(names):
            size = "all" if unsized[name] == k else str(random.integers(1, 5))
            register = self.any_register() if self.any_rules and random.random() < 0.4 else ""
            if not self.any_rules and k == len(names) - 1 and not has_inner:
                register = self.first()
            parallel = random.choice(["", "", "", ":parallel"])
            loops.append(f"{name}:{size}{register}{parallel}")
        if random.random() < 0.3:
            loops.insert(
                random.integers(len(loops) + 1), random.choice(["oc", "oy:4", "n:parallel"])
            )
        return f"nest({','.join([*loops, *([self.inner_order()] if has_inner else [])])})"
