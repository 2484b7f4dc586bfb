"""A block multiply-add, as tensor cores and matrix cores sum a dot product: L products at once."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, get_args

from tracer.accumulators.spec import check_word, float_accumulator
from tracer.accumulators.spec.operand_format import BLOCKS, OperandFormat, Scaling, operand_format
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

_SPELLING = re.compile(r"bfma\((\d{1,3}),(\d{1,2})((?:,[a-z0-9:=-]+(?:\([a-z]+\))?)*)\)")
_NUMBER = re.compile(r"-?\d{1,9}")
_MOST_LENGTH, _MOST_FRACTION = 128, 35
"""So that sums of a block have fewer than 2^53 units: float64 and int64 hold them exactly."""
_HALF = float_accumulator.FloatFormat(5, 10)
_GROUPED = float_accumulator.float_format("fp4-e2m1")
"""Elements that are added in groups: numbers so small that sums of a block stay exact."""
SINGLE = float_accumulator.FloatFormat(8, 23)
_NEAREST, _TRUNCATED = float_accumulator.FloatRounding(), float_accumulator.FloatRounding("rz")


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

    With the `scaling` of a block format, operands are elements in `operands` times the scales of
    their blocks. Scales of `mx` are powers of 2, whose exponents are added to those of a product.
    With a `group`, so many products of elements are added exactly, and are one term: their sum,
    times the significands of both scales, with the sum of the scales' exponents; scales of `nvfp4`
    count by magnitude. With `tiles`, each sum that is promoted is multiplied by the product of both
    scales, rounded to fp32, and added in one rounding. A scale of NaN gives NaN.

    Raises UsageError for values that are not possible.
    """

    kind: ClassVar[str] = "block"
    length: int
    fraction: int
    out: float_accumulator.FloatFormat = SINGLE
    rounding: float_accumulator.FloatRounding = _TRUNCATED
    operands: float_accumulator.FloatFormat = _HALF
    rule: Rule = "aligned"
    schedule: Schedule = "chain"
    least: int | None = None
    promote: int | None = None
    scaling: Scaling = "none"
    group: int = 1

    def __post_init__(self) -> None:
        check_word("rule", self.rule, get_args(Rule))
        check_word("schedule", self.schedule, get_args(Schedule))
        if self.rounding.name == "floor":
            raise UsageError("rounding 'floor' of a block", "It is rne, rz or sr.")
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
        self._check_scales()

    def _check_scales(self) -> None:
        if self.scaling == "none" and self.group == 1:
            return
        if self.scaling == "tiles" and self.rounding.name == "sr":
            raise UsageError("stochastic rounding of tiles", "Leave out one of the two.")
        size = BLOCKS.get(self.scaling)
        if size is None or (self.rule, self.schedule) != ("aligned", "chain"):
            raise UsageError(
                f"a block of operands with scales {self.scaling}, {self.rule}, {self.schedule}",
                f"Scales are those of {', '.join(BLOCKS)}, and such blocks are aligned in a chain.",
            )
        if self.promote != (size if self.scaling == "tiles" else None):
            raise UsageError(
                f"a promotion after {self.promote} products with scales {self.scaling}",
                f"Tiles, and they alone, are promoted after {BLOCKS['tiles']}.",
            )
        grouped = self.group == BLOCKS["nvfp4"] and self.operands == _GROUPED
        if (self.group != 1 or self.scaling == "nvfp4") and not (
            grouped and self.scaling != "tiles" and self.length % self.group == 0
        ):
            raise UsageError(
                f"groups of {self.group} products of {self.operands} with scales {self.scaling}",
                f"Only {_GROUPED} with scales mx or nvfp4 is added in groups, of "
                f"{BLOCKS['nvfp4']}, which divides the length of a block.",
            )

    @property
    def operand_format(self) -> OperandFormat:
        """The elements with the scales of their blocks."""
        return OperandFormat(self.operands, self.scaling)

    @property
    def register(self) -> float_accumulator.FloatFormat:
        """The format that a start is rounded to: fp16 for sums in fp16, else fp32."""
        return self.out if self.out == _HALF else SINGLE

    def __str__(self) -> str:
        """The spelling that `block_fma` reads."""
        usual = BlockFma(self.length, self.fraction, self.out, _usual_rounding(self.out))
        options = [
            str(value) if name in _WORDS else f"{_SPELLED.get(name, name)}={value}"
            for name in _OPTIONS
            if (value := getattr(self, name)) != getattr(usual, name)
        ]
        return f"bfma({','.join([str(self.length), str(self.fraction), str(self.out), *options])})"


_WORDS = {
    "rounding": {"rne": _NEAREST, "rz": _TRUNCATED, "sr": float_accumulator.FloatRounding("sr")},
    "rule": {name: name for name in get_args(Rule)},
    "schedule": {name: name for name in get_args(Schedule)},
}
"""Properties that are spelled by a word alone, or by `sr=SEED`."""
_SPELLED = {"operand_format": "operands"}
"""Properties that are spelled by another name."""
_OPTIONS = (*_WORDS, "operand_format", "group", "least", "promote")


def block_fma(spelling: str) -> BlockFma:
    """Parses `bfma(16,25)` or `bfma(32,13,e8m13)`: products, bits of fraction, format of the sum.

    Sums in fp16 are rounded to nearest, others towards 0, as NVIDIA does. Further options are rne,
    rz, sr or sr=SEED, a rule, a schedule, `operands=FORMAT`, `group=N`, `least=N` and `promote=N`;
    a format may be one with scales of blocks. Raises UsageError.
    """
    match = _SPELLING.fullmatch(spelling.strip().replace(" ", ""))
    if match is None:
        raise UsageError(f"'{spelling}' is not a block multiply-add", _HINT)
    options = match[3].split(",")[1:]
    out = SINGLE
    if options and float_accumulator.is_float_format(options[0]):
        out = float_accumulator.float_format(options.pop(0))
    properties: dict[str, Any] = {"rounding": _usual_rounding(out)}
    for option in options:
        properties.update(_property(spelling, option))
    return BlockFma(int(match[1]), int(match[2]), out, **properties)


_HINT = (
    "It is bfma(L,F) or bfma(L,F,FORMAT), as in bfma(16,25,fp32); further options are rne, rz, "
    f"sr=SEED, {', '.join([*get_args(Rule), *get_args(Schedule)])}, operands=FORMAT, group=N, "
    "least=N and promote=N."
)


def _property(spelling: str, option: str) -> Mapping[str, Any]:
    """Returns the properties that an option sets, by name."""
    for name, words in _WORDS.items():
        if option in words:
            return {name: words[option]}
    name, _, value = option.partition("=")
    if name == "sr" and _NUMBER.fullmatch(value):
        return {"rounding": float_accumulator.FloatRounding("sr", int(value))}
    if name == "operands":
        operands = operand_format(value)
        if operands.element is None or operands.scaling not in ("none", *BLOCKS):
            raise UsageError(
                f"'{value}' is no format that a block multiply-add knows",
                "It multiplies floats, and floats whose blocks share a scale.",
            )
        return {"operands": operands.element, "scaling": operands.scaling}
    if name in ("group", "least", "promote") and _NUMBER.fullmatch(value):
        return {name: int(value)}
    raise UsageError(f"'{spelling}': '{option}' is not an option", _HINT)


def _usual_rounding(out: float_accumulator.FloatFormat) -> float_accumulator.FloatRounding:
    """Returns how NVIDIA rounds a sum in this format."""
    return _NEAREST if out == _HALF else _TRUNCATED
