"""Where a black box adds its bias, once the rule of its sum without one is known.

A bias may be a term of the sum, as for nodes of models, or be added after the sum was rounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from itertools import product
from typing import get_args

import numpy as np

from tracer.accumulators.floats import casting
from tracer.accumulators.spec import NARROWEST, WIDEST, Bias, kinds
from tracer.accumulators.spec.accumulator import Accumulator, AnyAccumulator
from tracer.accumulators.spec.block_fma import SINGLE, BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator, FloatFormat, float_format
from tracer.accumulators.spec.orders import Chunked
from tracer.arithmetic import float_probes, float_trees, integer_search, trees
from tracer.arithmetic.black_box import BlackBox
from tracer.arithmetic.finding import Finding, words
from tracer.arithmetic.float_probes import CHUNK, emulated
from tracer.arithmetic.integer_search import MODES, sums_of
from tracer.arithmetic.rule import LEAST_RESULTS, Facts, NotKnown
from tracer.errors import UsageError
from tracer.support.types import Array

_Way = tuple[str, AnyAccumulator | None, Callable[[Array, Array, Array], Array]]
"""A place of the bias, the accumulator that has it, and its sums of rows and biases (N)."""


def find(box: BlackBox, random: np.random.Generator, found: Finding) -> Finding:
    """Returns the rule of a sum with the place of its bias, which 10,000 more vectors verified.

    Raises NotKnown if no place explains them.
    """
    known = None if found.spec is None else kinds.parse(found.spec, Accumulator(32)).accumulator
    if isinstance(known, Accumulator):
        ways, bits = _of_integers(known), known.bits
    else:
        ways, bits = _of_floats(box, known, found.facts), 0
    drawn = [_draw(box, random, bits) for _ in range(LEAST_RESULTS // CHUNK)]
    runs = [(each, box.sums(*each)) for each in drawn]
    for place, own, sums in ways:
        if all(float_probes.equal(sums(*given), outputs).all() for given, outputs in runs):
            text, facts = found.text, {**found.facts, "bias": place, "sum": found.spec}
            if isinstance(own, Accumulator) and replace(own, bias="first") != known:
                text, facts = words(own), {**facts, **own.to_plain()}
            if own != known:
                facts.pop("preset", None)
            spec = None if own is None else str(own)
            return replace(found, text=f"{text}; the bias {place}", spec=spec, facts=facts)
    raise NotKnown(f"without a bias: {found.spec or found.text}; no place explains the bias")


def _draw(box: BlackBox, random: np.random.Generator, bits: int) -> tuple[Array, Array, Array]:
    """Returns operands, and biases (N) that cancel a part of their sum, or are about as large.

    Those of integers stay in `bits`; some bring a part of a sum near the limit, or near another.
    """
    form = box.operands.left.format
    if form is None:
        left, right = integer_search.draw(box, random, CHUNK, (1, bits + 1))
    else:
        left, right = float_probes.draw(box, random, CHUNK, box.terms)
    parts = np.cumsum(left * right, 1)[np.arange(CHUNK), random.integers(0, box.terms, CHUNK)]
    signs, is_other = random.choice([-1, 1], CHUNK), random.random(CHUNK) < 0.5
    if form is not None:
        factors = np.where(is_other, -1, signs * np.exp2(random.uniform(-12, 12, CHUNK)))
        bias = casting.cast(parts * factors, form, saturates=True)
        return left, right, bias.astype(np.float64)
    widest = min(np.iinfo(box.bias_type).bits, bits, WIDEST - 3) - 1  # sums are below 2^62
    limits = 1 << np.minimum(random.integers(1, 2 * widest + 1, CHUNK), widest)
    near = limits - np.abs(parts) + random.integers(-2, 3, CHUNK)
    bias = np.where(is_other, random.integers(limits), near) * signs
    return left, right, np.clip(bias, 1 - (1 << widest), (1 << widest) - 1)


def _of_integers(known: Accumulator) -> Iterator[_Way]:
    """Yields the places of a bias, which may also tell a register that no sum without it leaves."""
    likely = [(known.bits, known.overflow), (WIDEST, known.overflow)]
    for registers in (likely, product(range(NARROWEST, WIDEST), MODES)):
        for (bits, mode), place in product(registers, get_args(Bias)):
            own = replace(known, bits=bits, overflow=mode, bias=place)
            yield place, own, partial(sums_of, own)
        if registers is likely:
            yield "after the sum, in more bits", None, lambda a, b, c: sums_of(known, a, b) + c


def _of_floats(box: BlackBox, known: AnyAccumulator | None, tree: Facts) -> Iterator[_Way]:
    """Yields the places of a bias in an accumulator, in a tree, and after the last rounding."""
    result = float_format(tree["result"]) if "result" in tree else None
    owns = [known] if isinstance(known, FloatAccumulator | BlockFma) else []
    if isinstance(known, FloatAccumulator):
        last = replace(known, chunk=None, order=Chunked(known.chunk)) if known.chunk else known
        with suppress(UsageError):  # what rounds at random begins with a bias
            owns.append(replace(last, bias="last"))

    def sums(own: FloatAccumulator | BlockFma | None, facts: Facts, *given: Array) -> Array:
        if own is None:
            sides = (given[0], *given[2:]), (given[1], *map(np.ones_like, given[2:]))
            values = float_trees.sums_of(facts, *map(np.column_stack, sides))
        else:
            values = emulated(own, *given)
        return values if result is None else casting.cast(values, result)

    def sums_apart(form: FloatFormat | None, left: Array, right: Array, bias: Array) -> Array:
        total = sums(owns[0] if owns else None, tree, left, right) + bias
        return total if form is None else casting.cast(total, form)

    for own in owns:
        yield getattr(own, "bias", "first"), own, partial(sums, own, tree)
    for place in reversed(trees.PLACES) if "program" in tree else ():
        program = trees.with_term(tree["program"], box.terms, place)
        yield place, None, partial(sums, None, {**tree, "program": program})
    for form in dict.fromkeys((result or SINGLE, SINGLE, None)):
        name = f"after the last rounding, in {form or 'float64'}"
        yield name, None, partial(sums_apart, form)
