"""The options of a what-if: accumulators, quantisation, metric, budget and energy model.

The module imports nothing heavy at its top: a command's `--help` and calls of the API read it.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, get_args

from tracer.accumulators.spec import Bias, Convention, Overflow
from tracer.analyzers.options import ADDITION_CONVENTIONS, DEFAULT_ENERGY_MODEL, METRIC
from tracer.errors import UsageError
from tracer.support.arguments import (
    FLAG,
    TEXT,
    amount,
    check_fields,
    integer,
    maybe,
    option,
    several,
)

if TYPE_CHECKING:
    from tracer.accumulators.spec.accumulator import Accumulator

SUMS, _QUANTISATION, _SEARCH = "Accumulators", "Quantisation", "Search"
_WORDS = several(TEXT)
_BITS = replace(
    several(maybe(integer(1))),
    allowed="a list of whole numbers from 1, or of None",
    reads=("counts",),
)
_UNCHANGED = (None,)


@dataclass(frozen=True, slots=True)
class WhatIfOptions:
    """Everything but the model, the widths and the data.

    Every combination of `orders`, `overflows`, `biases`, `weight_bits` and `activation_bits`
    (None keeps those of the model) is a variant. `range_convention` says which range a width
    holds. `fixed` are fixed-point formats for a float graph, as `parse_policy` reads them.
    `limit` None takes all samples, and `batch` None 64 for an inference, or up to 256 small ones.
    `metric` None chooses one that fits labels and outputs. `accuracy_budget` is how much the
    metric may lose, in its unit [default: a percentage point, 0.05 bits of perplexity, 1 of
    other units]. `search` also searches a width for each node. `explain` makes the evaluations
    that name the node which limits B. `energy` names a model of `tracer.analyzers.energy`.
    `addition_convention` says how additions are counted, as in `tracer.analyzers.cost`; None counts
    channelwise for a channelwise order, and plain otherwise.
    """

    orders: tuple[str, ...] = option(
        "Orders of addition: sequential, channelwise, positionwise, tree, chunked(32), lanes(8), "
        "sorted, maddubs, nest(ky,kx,ic), runtime.  [default: sequential]",
        ("sequential",), group=SUMS, rule=_WORDS, flag="--order", common=True,
    )  # fmt: skip
    overflows: tuple[Overflow, ...] = option(
        "What happens to a sum outside the range: saturate, symmetric, wrap, zero.  [default: "
        "saturate]",
        ("saturate",), group=SUMS, rule=_WORDS, flag="--overflow",
        reads=("words", *(mode for mode in get_args(Overflow) if mode != "error")),
    )  # fmt: skip
    biases: tuple[Bias, ...] = option(
        "When the bias is added: first, last.  [default: first]",
        ("first",), group=SUMS, rule=_WORDS, flag="--bias", reads=("words", *get_args(Bias)),
    )  # fmt: skip
    product_bits: int | None = option(
        "Width that products are reduced to before addition.  [default: exact]",
        None, group=SUMS, rule=maybe(integer(1)), reads=("integer",), metavar="BITS",
    )  # fmt: skip
    range_convention: Convention = option(
        "Do not count the sign bit: B bits hold -2^B to 2^B - 1.",
        "twos-complement", group=SUMS, rule=TEXT, flag="--magnitude", typed=False,
        convert=lambda is_set: "magnitude" if is_set else "twos-complement",
    )  # fmt: skip
    weight_bits: tuple[int | None, ...] = option(
        "Widths that weights are reduced to.  [default: unchanged]",
        _UNCHANGED, group=_QUANTISATION, rule=_BITS, typed=None,
        convert=lambda bits: bits or _UNCHANGED,
    )  # fmt: skip
    activation_bits: tuple[int | None, ...] = option(
        "Widths that activations are reduced to.  [default: unchanged]",
        _UNCHANGED, group=_QUANTISATION, rule=_BITS, typed=None,
        convert=lambda bits: bits or _UNCHANGED,
    )  # fmt: skip
    fixed: str | None = option(
        "Fixed-point formats of float tensors, instead of quantisation: bits:fraction bits of "
        "activations/weights, e.g. 8:5/8:7, or 8:block(16).",
        None, group=_QUANTISATION, metavar="FORMATS",
    )  # fmt: skip
    metric: str | None = option(METRIC, None, group=_SEARCH, metavar="NAME", common=True)
    limit: int | None = option(
        "Samples of --data to use.  [default: all]", None, group="Input", common=True
    )
    batch: int | None = option(
        "Samples per inference.  [default: 64; up to 256 of many small ones]", None, group="Input",
        rule=maybe(integer(1)),
    )  # fmt: skip
    accuracy_budget: float | None = option(
        "Accuracy that may be lost, in percentage points or the metric's unit.  [default: 1 point; "
        "0.05 bits of perplexity]",
        None, group=_SEARCH, rule=maybe(amount("points")), flag="--budget", common=True,
    )  # fmt: skip
    search: bool = option(
        "Also search a width for each node.", True,
        group=_SEARCH, rule=FLAG, flag="--search/--no-search",
    )  # fmt: skip
    explain: bool = option(
        "Take a bit from each node of B in turn, and name the node whose bit costs most. One "
        "evaluation for each node.",
        False, group=_SEARCH, rule=FLAG,
    )  # fmt: skip
    energy: str = option(
        "Energy model; see 'tracer docs energy'.", DEFAULT_ENERGY_MODEL,
        group=_SEARCH, rule=TEXT, reads=("energy",), common=True,
    )  # fmt: skip
    addition_convention: str | None = option(
        "How additions are counted; see 'tracer docs counting'.  [default: by --order]",
        None, group=_SEARCH, rule=maybe(TEXT), flag="--convention",
        reads=("choice", *ADDITION_CONVENTIONS),
    )  # fmt: skip

    def __post_init__(self) -> None:
        """Raises UsageError for a value of the wrong type, or out of range."""
        check_fields(self)

    def accumulators(self, bits: int) -> Iterator[Accumulator]:
        """Yields an accumulator of `bits` bits for each combination.

        Raises UsageError for a property that no accumulator has.
        """
        from tracer.accumulators.spec import orders
        from tracer.accumulators.spec.accumulator import Accumulator

        if "error" in self.overflows:
            raise UsageError(
                "overflow 'error' would end the first run that overflows",
                "Sweep the others: saturate, symmetric, wrap, zero.",
            )
        if self.range_convention == "unsigned":
            raise UsageError(
                "a sweep of unsigned widths has no sums without overflow to compare with",
                "Name the accumulators: u16,u18,u20.",
            )
        for order, overflow, bias in itertools.product(self.orders, self.overflows, self.biases):
            yield Accumulator(
                bits, overflow, orders.named(order), self.product_bits, bias, self.range_convention
            )

    def operands(self) -> Iterator[tuple[int | None, int | None]]:
        """Yields bits of weights and of activations for each combination."""
        return itertools.product(self.weight_bits, self.activation_bits)


_FIELDS_OF_0_1 = {
    "budget": "accuracy_budget",
    "convention": "range_convention",
    "counting": "addition_convention",
}


def __getattr__(name: str) -> Callable[..., WhatIfOptions]:
    """Returns the class by the name that it had in 0.1, which takes the field names of 0.1."""
    if name != "Options":
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    warnings.warn("Options is now WhatIfOptions", DeprecationWarning, stacklevel=2)
    return lambda **fields: WhatIfOptions(
        **{_FIELDS_OF_0_1.get(field, field): value for field, value in fields.items()}
    )
