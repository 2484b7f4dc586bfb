"""Guarantees: a record that no input makes a partial sum of certain nodes overflow.

It needs no data: the bounds of the sums follow from the stored weights and the ranges of the
inputs, and are computed again where it is checked. So it holds for inputs of the sizes of a run.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

import msgspec

from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.spec.policy import Policy
from tracer.accumulators.statistics.certificate import Certificate
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.accumulators.statistics.statement import Statement, refusal, tool
from tracer.errors import ThresholdError, refusing
from tracer.graph.model import Model


@dataclass(frozen=True, slots=True)
class GuaranteedNode:
    """The `accumulator` of one node, by the names of its properties.

    `bits_guaranteed` bits hold its sums for any input, in any order.
    """

    accumulator: Mapping[str, int | str | None]
    bits_guaranteed: int
    format: str | None = None


@dataclass(frozen=True, slots=True)
class Guarantee(Statement):
    """States that no input makes a sum of `nodes` overflow, by key; `tool` wrote it.

    `left_out` are all other nodes that sum.
    """

    model_sha256: str
    holds_for: Literal["any input"]
    nodes: Mapping[str, GuaranteedNode]
    tool: str
    left_out: tuple[str, ...] = ()

    def check(self, model: Model, sums: Mapping[str, PartialSums], policy: Policy) -> None:
        """Checks the guarantee against `sums`, those of a run of `model` with `policy`.

        Raises ThresholdError, naming the reason: another model, another policy, a node whose sums
        may overflow or were not computed, or widths other than the guaranteed ones.
        """
        self.check_model(model)
        self.check_complete(model)
        self.check_policy(model, policy)
        for key, stated in self.nodes.items():
            own = sums.get(key)
            needed = None if own is None else _needed(own)
            if own is None or needed is None:
                raise ThresholdError(
                    f"{model.name}: node '{key}' has no bounds: the run did not add its products",
                    "Choose inputs with which it runs.",
                )
            bits = own.tally.accumulator.bits
            if needed > bits:
                raise ThresholdError(
                    f"{model.name}: some inputs make node '{key}' overflow {bits} bits",
                    f"Its weights and the range of its inputs need {needed}.",
                )
            if needed != stated.bits_guaranteed:
                raise ThresholdError(
                    f"{model.name}: node '{key}' has other bounds than the certificate states",
                    f"It states {stated.bits_guaranteed} bits; the sums need {needed}, for inputs "
                    "of these sizes.",
                )


def guarantee(
    sha256: str, sums: Mapping[str, PartialSums], every: Sequence[str]
) -> Guarantee | None:
    """Returns the guarantee for the nodes whose accumulators hold the sums of any input.

    `sums` are those of a run of the model with the hash `sha256`, by node key; `every` are all of
    its nodes that sum. None where no node
    has such an accumulator. Products of a width of their own, or rounded, are not covered.
    """
    nodes = {
        key: GuaranteedNode(each.tally.accumulator.to_plain(), bits)
        for key, each in sums.items()
        if (bits := _needed(each)) is not None and bits <= each.tally.accumulator.bits
    }
    if not nodes:
        return None
    others = tuple(key for key in every if key not in nodes)
    return Guarantee(sha256, "any input", nodes, tool(), others)


def _needed(sums: PartialSums) -> int | None:
    """Returns the bits that hold the sums of any input in any order.

    None where they are unknown, or where a register within the order is too narrow for its sums.
    """
    accumulator = sums.tally.accumulator
    inner = [
        stage.register.bits
        for stage in accumulator.order.stages(Terms(1))
        if stage.register is not None
    ]
    if accumulator.product_bits is not None or accumulator.product_shift:
        return None
    if inner and (sums.guaranteed_inner is None or sums.guaranteed_inner > min(inner)):
        return None
    return sums.guaranteed_any_order


def read(text: bytes) -> Certificate | Guarantee:
    """Returns what `to_json` of either wrote. Raises InputError for other text."""
    with refusing(refusal):
        is_guarantee = "holds_for" in msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return Guarantee.from_json(text) if is_guarantee else Certificate.from_json(text)
