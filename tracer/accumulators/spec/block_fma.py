"""A block multiply-add, as tensor cores and matrix cores sum a dot product: L products at once."""

import re
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from tracer.accumulators.spec.float_accumulator import FloatRoundingName
from tracer.accumulators.spec.float_format import FloatFormat, float_format, is_float_format
from tracer.errors import UsageError

Rule = Literal["aligned", "exact", "pairwise", "late", "odd-even"]
"""How a block of products is added to the sum C.

- `aligned` (NVIDIA): C and the products are truncated towards 0 to multiples of 2^(e - fraction),
  where e is the greatest exponent among them, and added exactly.
- `exact` (CDNA1): C and the products are added exactly.
- `pairwise` (CDNA2): products are added in pairs, pairs of pairs and so on, each sum rounded to
  nearest in fp32, then C; subnormal operands and sums become 0.
- `late` (CDNA3): products alone are truncated as in `aligned`. Their sum keeps 31 bits of fraction,
  C 24, both rounded down at the greater of their exponents, before they are added.
- `odd-even` (CDNA3, fp8): products of even and of odd k are summed apart, as in `aligned`, and each
  sum is rounded down to 24 bits at the common exponent; then as in `late`.
"""
Schedule = Literal["chain", "split"]
"""How blocks follow each other. `chain`: each block is added to the sum of the blocks before, which
is rounded each time. `split`: 32 products at a time, those of k = 0, 1, 4, 5, ... in one block that
begins with 0, the others in a second block on top; C is added to the rounded sum, to nearest."""

NAME = "bfma"
_SPELLING = re.compile(r"bfma\((\d{1,3}),(\d{1,2})((?:,[a-z0-9:=-]+)*)\)")
_NUMBER = re.compile(r"-?\d{1,9}")
_MOST_LENGTH, _MOST_FRACTION = 128, 35
"""So that sums of a block have fewer than 2^53 units: float64 and int64 hold them exactly."""
_HALF = FloatFormat(5, 10)
SINGLE = FloatFormat(8, 23)


@dataclass(frozen=True, slots=True)
class BlockFma:
    """Adds `length` products to the sum at a time; the sum is rounded to `out` after each block.

    `rule` says how a block is added, `schedule` how blocks follow each other. The last block is
    filled up with zeros. `fraction` bits below the leading bit of the greatest term are kept. A
    product has the sum of the exponents of its factors, as read from their codes: a factor's
    significand is below 2, and below 1 for a subnormal number of `operands`. A term of 0 has no
    exponent. `least` is a lower bound of e, of which the public models differ; None has none.

    A start is C of the first block. Overflow is decided after rounding. NaN, infinity times 0, and
    infinities of both signs give NaN, whose bits are all 1 but the sign. A sum of 0 is +0. With
    `promote`, each `promote` products are summed from 0, and these sums are added in fp32, to
    nearest.

    Raises UsageError for values that are not possible.
    """

    kind: ClassVar[str] = "block"
    length: int
    fraction: int
    out: FloatFormat = SINGLE
    rounding: FloatRoundingName = "rz"
    operands: FloatFormat = _HALF
    rule: Rule = "aligned"
    schedule: Schedule = "chain"
    least: int | None = None
    promote: int | None = None

    def __post_init__(self) -> None:
        for name, choices in (("rule", Rule), ("schedule", Schedule)):
            if getattr(self, name) not in get_args(choices):
                raise UsageError(
                    f"{name} {getattr(self, name)!r}",
                    f"It is one of {', '.join(get_args(choices))}.",
                )
        if self.rounding not in ("rne", "rz"):
            raise UsageError(f"rounding {self.rounding!r} of a block", "It is rne or rz.")
        if not 1 <= self.length <= _MOST_LENGTH:
            raise UsageError(
                f"a block of {self.length} products", f"It has from 1 to {_MOST_LENGTH}."
            )
        if not 0 <= self.fraction <= _MOST_FRACTION:
            raise UsageError(
                f"{self.fraction} bits of fraction", f"A block keeps from 0 to {_MOST_FRACTION}."
            )
        if self.promote is not None and self.schedule != "chain":
            raise UsageError(
                f"a promotion with the schedule {self.schedule}", "Only a chain has promotions."
            )
        if self.promote is not None and (self.promote < 1 or self.promote % self.length):
            raise UsageError(
                f"a promotion after {self.promote} products",
                f"It is a multiple of the length of a block, {self.length}.",
            )

    @property
    def register(self) -> FloatFormat:
        """The format that a start is rounded to: fp16 for sums in fp16, else fp32."""
        return self.out if self.out == _HALF else SINGLE

    def __str__(self) -> str:
        """The spelling that `block_fma` reads."""
        usual = BlockFma(self.length, self.fraction, self.out, _usual_rounding(self.out))
        options = [
            str(value) if name in _WORDS else f"{name}={value}"
            for name in _OPTIONS
            if (value := getattr(self, name)) != getattr(usual, name)
        ]
        return (
            f"{NAME}({','.join([str(self.length), str(self.fraction), str(self.out), *options])})"
        )


_WORDS = {"rounding": ("rne", "rz"), "rule": get_args(Rule), "schedule": get_args(Schedule)}
"""Properties that are spelled by a word alone."""
_OPTIONS = (*_WORDS, "operands", "least", "promote")


def is_block_fma(spelling: str) -> bool:
    """Returns whether a text begins as a block multiply-add does."""
    return spelling.strip().startswith(f"{NAME}(")


def block_fma(spelling: str) -> BlockFma:
    """Parses `bfma(16,25)` or `bfma(32,13,e8m13)`: products, bits of fraction, format of the sum.

    Sums in fp16 are rounded to nearest, others towards 0, as NVIDIA does. Further options are rne
    or rz, a rule, a schedule, `operands=FORMAT`, `least=N` and `promote=N`. Raises UsageError.
    """
    match = _SPELLING.fullmatch(spelling.strip().replace(" ", ""))
    if match is None:
        raise UsageError(f"'{spelling}' is not a block multiply-add", _HINT)
    options = match[3].split(",")[1:]
    out = SINGLE
    if options and is_float_format(options[0]):
        out = float_format(options.pop(0))
    properties: dict[str, Any] = {"rounding": _usual_rounding(out)}
    for option in options:
        properties.update([_property(spelling, option)])
    return BlockFma(int(match[1]), int(match[2]), out, **properties)


_HINT = (
    "It is bfma(L,F) or bfma(L,F,FORMAT), as in bfma(16,25,fp32); further options are rne, rz, "
    f"{', '.join([*get_args(Rule), *get_args(Schedule)])}, operands=FORMAT, least=N and promote=N."
)


def _property(spelling: str, option: str) -> tuple[str, Any]:
    """Returns the name and the value of the property that an option sets."""
    for name, words in _WORDS.items():
        if option in words:
            return name, option
    name, _, value = option.partition("=")
    if name == "operands":
        return name, float_format(value)
    if name in ("least", "promote") and _NUMBER.fullmatch(value):
        return name, int(value)
    raise UsageError(f"'{spelling}': '{option}' is not an option", _HINT)


def _usual_rounding(out: FloatFormat) -> FloatRoundingName:
    """Returns how NVIDIA rounds a sum in this format."""
    return "rne" if out == _HALF else "rz"
