"""Certificates that no partial sum of a model overflows: on certain inputs, or for any input.

A `Certificate` holds for its model, data, order and widths. A `Guarantee` needs no data: the bounds
of the sums follow from the stored weights and the ranges of the inputs, and are computed again
where it is checked. So it holds for inputs of the sizes of a run. Both are JSON.
"""

import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib import metadata
from typing import Literal, Self

import msgspec
import numpy as np

from tracer.accumulators.exactness import Exactness, prove
from tracer.accumulators.hardware import presets
from tracer.accumulators.nodes import nodes_that_sum, rules_of
from tracer.accumulators.spec import WIDEST
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.operand_format import formats
from tracer.accumulators.spec.orders import Terms
from tracer.accumulators.spec.policy import Entry, Policy, Rule, parse_policy
from tracer.accumulators.statistics.partial_sums import PartialSums, Tally
from tracer.errors import InputError, ThresholdError, UsageError, refusing
from tracer.graph import stored_weights
from tracer.graph.model import Model
from tracer.graph.operators import PARTLY
from tracer.interpreter.values import Value
from tracer.support.types import dtype_text
from tracer.text import brief, plural


class Statement:
    """States something about the sums of some nodes of the model with the hash `model_sha256`.

    `left_out` are the keys of all other nodes that sum.
    """

    __slots__ = ()
    model_sha256: str
    nodes: "Mapping[str, CertifiedNode | GuaranteedNode]"
    left_out: tuple[str, ...]

    def to_json(self) -> bytes:
        """Returns one JSON object, UTF-8, with the names of the fields."""
        return msgspec.json.format(msgspec.json.encode(self), indent=1) + b"\n"

    @classmethod
    def from_json(cls, text: bytes) -> Self:
        """Returns the statement that `to_json` wrote. Raises InputError for other text."""
        with refusing(_refusal):
            return msgspec.json.decode(text, type=cls, strict=True)

    def policy(self) -> Policy:
        """Returns the accumulators and formats of the nodes.

        Raises InputError where a property of an accumulator is invalid.
        """
        try:
            with refusing(_refusal):
                return Policy(
                    tuple(
                        Entry(key, Accumulator.from_plain(node.accumulator), key, exact=True)
                        for key, node in self.nodes.items()
                    ),
                    tuple(
                        Entry(key, formats(node.format), key, exact=True)
                        for key, node in self.nodes.items()
                        if node.format is not None
                    ),
                )
        except UsageError as error:
            raise _refusal(error.what) from error

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
        rules = rules_of(policy, model)
        for key, certified in self.policy().assign(model.nodes).items():
            if rules.get(key) != certified:
                theirs, ours = _properties(certified), _properties(rules.get(key))
                names = [name for name in theirs if ours.get(name) != theirs[name]]
                raise ThresholdError(
                    f"{model.name}: the certificate is for another policy",
                    f"Node '{key}' has {_listed(theirs, names)} in the certificate, and "
                    f"{_listed(ours, names)} in this policy.",
                )


def _refusal(why: str) -> InputError:
    """Returns the error for a text that is no certificate, and why."""
    return InputError(f"not a certificate ({why})", "Write a new one.")


def _tool() -> str:
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


@dataclass(frozen=True, slots=True)
class CertifiedNode:
    """The `accumulator` of one node, by the names of its properties, and statistics of its sums.

    `format` is the fixed-point format of float operands, if the policy has one for the node.
    """

    accumulator: Mapping[str, int | str | None]
    outputs: int
    bits_observed: int
    format: str | None = None


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
        self, model: Model, data: "DataHash", tallies: Mapping[str, Tally], policy: Policy
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
                f"It certifies {plural(self.inputs, 'set')} with SHA-256 {self.data_sha256}; these "
                f"are {data.count} with {data.sha256}.",
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
                    f"It states {theirs.bits_observed} bits for {plural(theirs.outputs, 'output')};"
                    f" here it needs {ours.bits_observed} for {ours.outputs}.",
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
            array = np.asarray(value)
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
        node, bits = f"{model.name}: node '{key}'", tally.accumulator.bits
        clipped, changed = int(tally.clipped_widths.sum()), int(tally.outputs_changed.sum())
        if clipped:
            raise ThresholdError(
                f"{node}: registers within the order overflow in {plural(clipped, 'output')}",
                "Set wider ones, as in two-level(24,256,32), or an order without.",
            )
        outside = int(tally.overflow().overflow_outputs.sum())
        if outside:
            needed = int(tally.bits_observed.max())
            raise ThresholdError(
                f"{node} overflows {bits} bits in {outside} of "
                f"{plural(int(tally.outputs.sum()), 'output')}",
                f"{needed if needed <= WIDEST else 'No number of'} bits hold all of these.",
            )
        if changed:
            raise ThresholdError(
                f"{node}: a width or a shift of products or of tiles changed "
                f"{plural(changed, 'output')}",
                "Set more product bits, or no shift.",
            )
    rules = rules_of(policy, model)
    nodes = {}
    for key, tally in whole.items():
        outputs, bits = int(tally.outputs.sum()), int(tally.bits_observed.max())
        form = rules[key].format
        text = None if form is None else str(form)
        nodes[key] = CertifiedNode(tally.accumulator.to_plain(), outputs, bits, text)
    others = tuple(key for key in nodes_that_sum(model) if key not in nodes)
    return Certificate(model.sha256, data.sha256, data.count, nodes, _tool(), others)


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

    `left_out` are all other nodes that sum. `machine` are the name, the source and the status of
    the preset whose accumulators the nodes have, if they have those of one. `exact` is what is
    proved of the float operations of an exact model.
    """

    model_sha256: str
    holds_for: Literal["any input"]
    nodes: Mapping[str, GuaranteedNode]
    tool: str
    left_out: tuple[str, ...] = ()
    machine: Mapping[str, str] | None = None
    exact: Exactness | None = None

    def check(self, model: Model, sums: Mapping[str, PartialSums], policy: Policy) -> None:
        """Checks the guarantee against `sums`, those of a run of `model` with `policy`.

        Raises ThresholdError, naming the reason: another model, another policy, a node whose sums
        may overflow or were not computed, or widths other than the guaranteed ones.
        """
        self.check_model(model)
        self.check_complete(model)
        self.check_policy(model, policy)
        if self.machine is not None:
            self.check_policy(model, parse_policy(self.machine.get("name", "")))
        proved = None if self.exact is None else prove_exact(model)
        if proved != self.exact:
            raise ThresholdError(
                f"{model.name}: not as exact as the certificate states",
                "tracer interpret --check-exact says which nodes round.",
            )
        for key, stated in self.nodes.items():
            own = sums.get(key)
            needed = None if own is None else _needed(own)
            if own is None or needed is None:
                raise ThresholdError(
                    f"{model.name}: node '{key}' has no bounds: the run did not add its products",
                    "Choose inputs with which it runs.",
                )
            bits = own.tally.accumulator.narrowest
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


def prove_exact(model: Model) -> Exactness:
    """Returns what is proved of the float operations of a model."""
    return prove(stored_weights.with_inline_weights(model.proto, model.folder))


def guarantee(
    sha256: str,
    sums: Mapping[str, PartialSums],
    every: Sequence[str],
    machine: str = "",
    exact: Exactness | None = None,
) -> Guarantee | None:
    """Returns the guarantee for the nodes whose accumulators hold the sums of any input.

    `sums` are those of a run of the model with the hash `sha256`, by node key; `every` are all of
    its nodes that sum, and `machine` is the preset that they are summed by. None where no node has
    such an accumulator. Products of a width of their own, or rounded, are not covered.
    """
    nodes = {
        key: GuaranteedNode(each.tally.accumulator.to_plain(), bits)
        for key, each in sums.items()
        if (bits := _needed(each)) is not None and bits <= each.tally.accumulator.narrowest
    }
    if not nodes:
        return None
    others = tuple(key for key in every if key not in nodes)
    preset = presets().get(machine)
    named = None if preset is None else {
        "name": preset.name, "source": preset.source, "status": preset.status,
    }  # fmt: skip
    return Guarantee(sha256, "any input", nodes, _tool(), others, named, exact)


def _needed(sums: PartialSums) -> int | None:
    """Returns the bits that hold the sums of any input in any order.

    None where they are unknown, or where a register within the order is too narrow for its sums.
    """
    accumulator = sums.tally.accumulator
    stages = accumulator.order.stages(Terms(1))
    inner = [stage.register.bits for stage in stages if stage.register is not None]
    if accumulator.product_bits is not None or accumulator.product_shift:
        return None
    if any(stage.shift or stage.spill for stage in stages):  # the order of terms counts
        return None
    if inner and (sums.guaranteed_inner is None or sums.guaranteed_inner > min(inner)):
        return None
    return sums.guaranteed_any_order


def read_certificate(text: bytes) -> Certificate | Guarantee:
    """Returns what `to_json` of either wrote. Raises InputError for other text."""
    with refusing(_refusal):
        is_guarantee = "holds_for" in msgspec.json.decode(text, type=dict[str, msgspec.Raw])
    return Guarantee.from_json(text) if is_guarantee else Certificate.from_json(text)
