"""The options of a what-if: accumulators, quantisation, metric, budget and energy model."""

import itertools
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields

from tracer.accumulators.spec import orders
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.register import Bias, Convention, Overflow
from tracer.analyzers.options import DEFAULT_ENERGY_MODEL
from tracer.errors import UsageError
from tracer.support.arguments import FLAG, TEXT, amount, check_arguments, integer, maybe, several

_WORDS = several(TEXT)
_BITS = several(maybe(integer(1)))
_RULES = {
    **dict.fromkeys(("orders", "overflows", "biases"), _WORDS),
    **dict.fromkeys(("weight_bits", "activation_bits"), _BITS),
    "product_bits": maybe(integer(1)), "range_convention": TEXT,
    "accuracy_budget": maybe(amount("points")),
    "search": FLAG, "explain": FLAG, "addition_convention": maybe(TEXT), "batch": integer(1),
    "energy": TEXT,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class WhatIfOptions:
    """Everything but the model, the widths and the data.

    Every combination of `orders`, `overflows`, `biases`, `weight_bits` and `activation_bits`
    (None keeps those of the model) is a variant. `range_convention` says which range a width
    holds. `fixed` are fixed-point formats for a float graph, as `parse_policy` reads them.
    `metric` None chooses one that fits labels and outputs. `accuracy_budget` is how much the
    metric may lose, in its unit [default: a percentage point, 0.05 bits of perplexity, 1 of
    other units]. `search` also searches a width for each node. `explain` makes the evaluations
    that name the node which limits B. `energy` names a model of `tracer.analyzers.energy`.
    `addition_convention` says how additions are counted, as in `tracer.analyzers.cost`; None counts
    channelwise for a channelwise order, and plain otherwise.
    """

    orders: tuple[str, ...] = ("sequential",)
    overflows: tuple[Overflow, ...] = ("saturate",)
    biases: tuple[Bias, ...] = ("first",)
    product_bits: int | None = None
    range_convention: Convention = "twos-complement"
    weight_bits: tuple[int | None, ...] = (None,)
    activation_bits: tuple[int | None, ...] = (None,)
    fixed: str | None = None
    metric: str | None = None
    limit: int | None = None
    batch: int = 64
    accuracy_budget: float | None = None
    search: bool = True
    explain: bool = False
    energy: str = DEFAULT_ENERGY_MODEL
    addition_convention: str | None = None

    def __post_init__(self) -> None:
        """Raises UsageError for a value of the wrong type, or out of range."""
        check_arguments({field.name: getattr(self, field.name) for field in fields(self)}, _RULES)

    def accumulators(self, bits: int) -> Iterator[Accumulator]:
        """Yields an accumulator of `bits` bits for each combination.

        Raises UsageError for a property that no accumulator has.
        """
        if "error" in self.overflows:
            raise UsageError(
                "overflow 'error' would end the first run that overflows",
                "Sweep the others: saturate, symmetric, wrap, zero.",
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
