"""What certificates have in common: a model, and the accumulators of its nodes, as JSON."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from importlib import metadata
from typing import Protocol, Self

import msgspec

from tracer.accumulators.nodes import nodes_that_sum
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.operand_format import formats
from tracer.accumulators.spec.policy import Entry, Policy, Rule
from tracer.errors import InputError, ThresholdError, UsageError, refusing
from tracer.graph.model import Model
from tracer.text import brief


class StatedNode(Protocol):
    """The `accumulator` of a node, by the names of its properties.

    `format` is the fixed-point format of float operands, if the policy has one for the node.
    """

    @property
    def accumulator(self) -> Mapping[str, int | str | None]:
        """The properties by name, as `plain_values.dumped` returns them."""

    @property
    def format(self) -> str | None:
        """Bits and fraction bits of activations and weights, as `8:5/8:7`."""


class Statement:
    """States something about the sums of some nodes of the model with the hash `model_sha256`.

    `left_out` are the keys of all other nodes that sum.
    """

    __slots__ = ()
    model_sha256: str
    nodes: Mapping[str, StatedNode]
    left_out: tuple[str, ...]

    def to_json(self) -> bytes:
        """Returns one JSON object, UTF-8, with the names of the fields."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Returns the statement that `to_json` wrote. Raises InputError for other text."""
        with refusing(refusal):
            return msgspec.json.decode(text, type=cls, strict=True)

    def policy(self) -> Policy:
        """Returns the accumulators and formats of the nodes.

        Raises InputError where a property of an accumulator is invalid.
        """
        try:
            with refusing(refusal):
                return _policy(self.nodes)
        except UsageError as error:
            raise refusal(error.what) from error

    def check_model(self, model: Model) -> None:
        """Raises ThresholdError where the certificate is for another model."""
        if model.sha256 != self.model_sha256:
            raise ThresholdError(
                f"{model.name}: the certificate is for another model",
                f"It certifies SHA-256 {self.model_sha256}; this model has {model.sha256}.",
            )
        strange = next(iter(self.nodes.keys() - {node.key for node in model.nodes}), None)
        if strange is not None:
            raise ThresholdError(
                f"{model.name}: the certificate names node '{strange}', which the model lacks",
                "The certificate was changed after it was written.",
            )

    def check_complete(self, model: Model) -> None:
        """Raises ThresholdError where a node that sums is neither stated nor told as left out."""
        missing = [key for key in nodes_that_sum(model) if key not in {*self.nodes, *self.left_out}]
        if missing or not self.nodes:
            more = f" and {len(missing) - 1} more that sum" if len(missing) > 1 else ", which sums"
            what = f"of node '{missing[0]}'{more}" if missing else "of any node"
            raise ThresholdError(
                f"{model.name}: the certificate says nothing {what}",
                "It was changed, or an older tracer wrote it: write a new one.",
            )

    def extent(self, model: Model) -> str:
        """Returns how many of the nodes that sum are stated, and the names of the others."""
        total = len({*nodes_that_sum(model), *self.nodes})
        covered = f"in {len(self.nodes):,} of {total:,} nodes that sum"
        others = [key for key in self.left_out if key not in self.nodes]
        return f"{covered}; left out: {', '.join(map(brief, others))}" if others else covered

    def check_policy(self, model: Model, policy: Policy) -> None:
        """Raises ThresholdError where `policy` assigns other accumulators to certified nodes."""
        rules = policy.assign(model.nodes)
        for key, certified in self.policy().assign(model.nodes).items():
            if rules.get(key) != certified:
                theirs, ours = _properties(certified), _properties(rules.get(key))
                names = [name for name in theirs if ours.get(name) != theirs[name]]
                raise ThresholdError(
                    f"{model.name}: the certificate is for another policy",
                    f"Node '{key}' has {_listed(theirs, names)} in the certificate, and "
                    f"{_listed(ours, names)} in this policy.",
                )


def _policy(nodes: Mapping[str, StatedNode]) -> Policy:
    return Policy(
        tuple(
            Entry(key, Accumulator.from_plain(node.accumulator), key, exact=True)
            for key, node in nodes.items()
        ),
        tuple(
            Entry(key, formats(node.format), key, exact=True)
            for key, node in nodes.items()
            if node.format is not None
        ),
    )


def refusal(why: str) -> InputError:
    """Returns the error for a text that is no certificate, and why."""
    return InputError(f"not a certificate ({why})", "Write a new one.")


def tool() -> str:
    """Returns the program that writes a certificate, with its version."""
    try:
        return f"tracer {metadata.version('tracer-onnx')}"
    except metadata.PackageNotFoundError:
        return "tracer, not installed"


def _properties(rule: Rule | None) -> dict[str, object]:
    if rule is None:
        return {}
    accumulator = rule.accumulator
    if not isinstance(accumulator, Accumulator):
        return {"accumulator": str(accumulator)}
    return {**accumulator.to_plain(), "format": rule.format and str(rule.format)}


def _listed(properties: Mapping[str, object], names: Sequence[str]) -> str:
    shown = ", ".join(f"{name} {properties[name]}" for name in names if name in properties)
    return shown or "no accumulator"
