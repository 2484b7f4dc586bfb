"""The narrow accumulators that a count is asked about, without a run: see `tracer.count`."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import pandas as pd

from tracer.accumulators.emulation import AccumulatorEmulation
from tracer.accumulators.hardware import spelling
from tracer.accumulators.nodes import rules_of
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.policy import Rule, as_policy
from tracer.api.count import Count
from tracer.graph.model import Model


@dataclass(frozen=True, slots=True)
class NarrowSums:
    """The rules of the nodes that would have narrow accumulators, by key; `notes` on others.

    `policy` is the spelling of all that was asked for.
    """

    policy: str
    rules: Mapping[str, Rule]
    notes: tuple[str, ...]

    @classmethod
    def of(cls, model: Model, call: Count) -> NarrowSums:
        """Returns the narrow sums of a model. Raises UsageError for what is no policy."""
        assert call.accumulator is not None
        chosen = as_policy(call.accumulator, call.fixed, call.operands)
        emulation = AccumulatorEmulation(model, chosen)
        floats = emulation.float_rules
        rules = {
            node: floats.get(node, rule)
            for node, rule in rules_of(chosen, model).items()
            if node in floats or node in emulation.runners
        }
        return cls(str(chosen), rules, emulation.notes)

    @property
    def columns(self) -> pd.DataFrame:
        """The columns `bits` (Int64), `accumulator` and `operands`, by node key.

        Accumulators of integers have a width; others are spelled, and the format of their operands.
        """
        integers, others = {}, {}
        for node, rule in self.rules.items():
            if isinstance(rule.accumulator, Accumulator):
                integers[node] = rule.accumulator.bits
            else:
                others[node] = rule
        formats = {node: str(each.operands) for node, each in others.items() if each.operands}
        columns = {
            "bits": pd.Series(integers, dtype="Int64"),
            "accumulator": {node: spelling(rule.accumulator) for node, rule in others.items()},
            "operands": formats,
        }
        return pd.DataFrame({name: pd.Series(column) for name, column in columns.items()})
