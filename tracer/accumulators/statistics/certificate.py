"""Certificates: a record that no partial sum of a model overflowed on certain inputs.

A certificate holds for its model, data, order and widths; a `guarantee` holds for any input.
"""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from tracer.accumulators.multiplying import PARTLY
from tracer.accumulators.nodes import nodes_that_sum
from tracer.accumulators.spec.policy import Policy, Rule
from tracer.accumulators.statistics.statement import Statement, tool
from tracer.accumulators.statistics.tally import Tally
from tracer.errors import ThresholdError, UsageError
from tracer.graph.model import Model
from tracer.interpreter.values import Value
from tracer.support.types import Array, dtype_text


@dataclass(frozen=True, slots=True)
class CertifiedNode:
    """The `accumulator` of one node, by the names of its properties, and statistics of its sums.

    `format` is the fixed-point format of float operands, if the policy has one for the node.
    """

    accumulator: Mapping[str, int | str | None]
    outputs: int
    bits_observed: int
    format: str | None = None

    @classmethod
    def of(cls, tally: Tally, rule: Rule) -> CertifiedNode:
        """Returns the record of a node's sums."""
        return cls(
            tally.accumulator.to_plain(),
            int(tally.outputs.sum()),
            int(tally.bits_observed.max()),
            None if rule.format is None else str(rule.format),
        )


@dataclass(frozen=True, slots=True)
class Certificate(Statement):
    """States that no sum overflowed on `inputs` sets of inputs with the hash `data_sha256`.

    `nodes` are the nodes with a narrow accumulator, by key, and `left_out` all others that sum;
    `tool` is the program that wrote it.
    """

    model_sha256: str
    data_sha256: str
    inputs: int
    nodes: Mapping[str, CertifiedNode]
    tool: str
    left_out: tuple[str, ...] = ()

    def check(
        self, model: Model, data: DataHash, tallies: Mapping[str, Tally], policy: Policy
    ) -> None:
        """Checks the certificate against `tallies`, the sums of a run on `data` with `policy`.

        Raises ThresholdError, naming the reason: another model, other inputs, another policy, a
        partial sum that overflows, or statistics other than the certified ones.
        """
        self.check_model(model)
        self.check_complete(model)
        if (data.sha256, data.count) != (self.data_sha256, self.inputs):
            raise ThresholdError(
                f"{model.name}: the certificate is for other inputs",
                f"It certifies {self.inputs} sets with SHA-256 {self.data_sha256}; these are"
                f" {data.count} with {data.sha256}.",
            )
        self.check_policy(model, policy)
        measured = certificate(model, data, tallies, policy).nodes
        for key in {**measured, **self.nodes}:
            ours, theirs = measured.get(key), self.nodes.get(key)
            if ours is None or theirs is None:
                raise ThresholdError(
                    f"{model.name}: the certificate is for another policy",
                    f"Node '{key}' has a narrow accumulator in only one of the two.",
                )
            if ours != theirs:
                raise ThresholdError(
                    f"{model.name}: node '{key}' has other sums than the certificate states",
                    f"It states {theirs.outputs} outputs that need {theirs.bits_observed} bits; "
                    f"there are {ours.outputs} that need {ours.bits_observed}.",
                )


class DataHash:
    """A hash over all inputs of a model, one set after another.

    It covers names, types, shapes and elements, but not the order of names in a set.
    """

    def __init__(self) -> None:
        self._digest = hashlib.sha256()
        self.count = 0

    def add(self, feeds: Mapping[str, Value]) -> None:
        """Adds one set of inputs."""
        self._add_text("feeds", len(feeds))
        for name in sorted(feeds):
            self._add_text("input", name)
            self._add(feeds[name])
        self.count += 1

    @property
    def sha256(self) -> str:
        """The hash of all sets so far, hexadecimal."""
        return self._digest.hexdigest()

    def _add(self, value: Value) -> None:
        if isinstance(value, list):
            self._add_text("sequence", len(value))
            for member in value:
                self._add(member)
        elif value is None:
            self._add_text("nothing")
        else:
            self._add_array(np.asarray(value))

    def _add_array(self, array: Array) -> None:
        self._add_text("tensor", dtype_text(array), array.shape)
        if array.dtype == object:
            for text in array.ravel():
                self._add_text(text if isinstance(text, bytes) else str(text))
            return
        little = array.astype(array.dtype.newbyteorder("<"), order="C", copy=False)
        self._digest.update(little.reshape(-1).view(np.uint8).data)

    def _add_text(self, *parts: object) -> None:
        """Adds the repr of `parts` and a line end, so that no two sequences of parts are alike."""
        self._digest.update(f"{parts!r}\n".encode("utf-8", "surrogatepass"))


def certificate(
    model: Model, data: DataHash, tallies: Mapping[str, Tally], policy: Policy
) -> Certificate:
    """Returns the certificate for `tallies`, by node key in model order, of runs on all of `data`.

    A node whose products are partly wide is left out. Raises ThresholdError, with the first node,
    where a partial sum overflowed, or where a product or a pair exceeded its own width; UsageError
    where no node has a narrow accumulator.
    """
    partly = {node.key for node in model.nodes if node.op_type in PARTLY}
    whole = {key: tally for key, tally in tallies.items() if key not in partly}
    if not data.count or not any(tally.outputs.any() for tally in whole.values()):
        raise UsageError(
            f"{model.name}: nothing was summed in an accumulator",
            "A certificate needs a run with narrow accumulators on some inputs.",
        )
    for key, tally in tallies.items():
        _refuse_overflow(f"{model.name}: node '{key}'", tally)
    rules = policy.assign(model.nodes)
    nodes = {key: CertifiedNode.of(tally, rules[key]) for key, tally in whole.items()}
    others = tuple(key for key in nodes_that_sum(model) if key not in nodes)
    return Certificate(model.sha256, data.sha256, data.count, nodes, tool(), others)


def _refuse_overflow(node: str, tally: Tally) -> None:
    clipped = int(tally.clipped_widths.sum())
    if clipped:
        raise ThresholdError(
            f"{node}: registers within the order overflow in {clipped} outputs",
            "Set wider ones, as in two-level(24,256,32), or an order without.",
        )
    bits = tally.accumulator.bits
    outside = int(tally.overflow(bits).overflow_outputs.sum())
    if outside:
        raise ThresholdError(
            f"{node} overflows {bits} bits in {outside} of {int(tally.outputs.sum())} outputs",
            f"{int(tally.bits_observed.max())} bits hold all of these.",
        )
    changed = int(tally.outputs_changed.sum())
    if changed:
        raise ThresholdError(
            f"{node}: products did not fit a width of their own in {changed} outputs",
            "Set more product bits.",
        )
