"""Computes the sums of a model's nodes in float accumulators, and collects their statistics."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import cached_property

from tracer.accumulators import hardware
from tracer.accumulators.engine.float_operands import FloatOperands
from tracer.accumulators.engine.float_runner import FloatRunner
from tracer.accumulators.engine.node_operands import NoIntegerForm
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.multiplying import multiplies
from tracer.accumulators.nodes import RunOperator, float_lowerings
from tracer.accumulators.spec.any_accumulator import ByOperands
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.operand_format import BLOCKS, OperandFormat, Scaling, operand_format
from tracer.accumulators.spec.policy import Rule
from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums, FloatTally
from tracer.errors import UsageError
from tracer.graph.model import Model, Node
from tracer.graph.shape_inference import TensorTypes
from tracer.interpreter import values
from tracer.interpreter.constants import MemoryBudget
from tracer.interpreter.values import Value
from tracer.shapes import infer

_GRAPH_FORMATS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
"""Formats of a graph's own types."""


Compute = Callable[[Sequence[Value], RunOperator], Sequence[Value]]
"""Computes the outputs of a node in its accumulator; raises NoIntegerForm for other operands."""


class FloatModel:
    """The nodes of a model that have float accumulators; every run adds to the statistics.

    The constants of a node are cast once, if `room` has the bytes.
    """

    def __init__(self, model: Model, scales: TensorScales, room: MemoryBudget) -> None:
        self._model = model
        self._scales = scales
        self._room = room
        self._runners: dict[str, FloatRunner] = {}
        self._chosen: dict[tuple[str, str, str], None] = {}
        self.rules: dict[str, Rule] = {}
        """The rules of the prepared nodes by key, with the operands that they multiply."""

    @property
    def notes(self) -> tuple[str, ...]:
        """Formats of operands that nobody set, for they follow from the accumulator."""
        return tuple(
            f"operands of {accumulator} are cast to {operands}, the {which} that it multiplies"
            for accumulator, operands, which in self._chosen
        )

    @property
    def sums(self) -> tuple[FloatPartialSums, ...]:
        """The statistics of the nodes that have run, in the order of the model."""
        return tuple(
            FloatPartialSums(node.key, self._runners[node.key].tally)
            for node in self._model.nodes
            if node.key in self._runners and self._runners[node.key].has_run
        )

    def prepare(self, node: Node, rule: Rule) -> Compute | None:
        """Prepares a node for a float accumulator; None if it sums no products.

        Raises UsageError for an accumulator that does not multiply the operands that are set, and
        NoIntegerForm for an operator whose products it does not add.
        """
        lowering = float_lowerings().get((node.domain, node.op_type))
        if lowering is None:
            if not multiplies(node):
                return None
            names = sorted({name for _, name in float_lowerings()})
            raise NoIntegerForm(f"float accumulators add products of {', '.join(names)} alone")
        accumulator, operands = self._resolved(node, rule)
        attributes = {a.name: values.from_attribute(a) for a in node.proto.attribute}
        constant = frozenset(
            index
            for index, name in enumerate(node.inputs)
            if name and self._scales.constant(name, node.scope)
        )
        has_scales = isinstance(accumulator, BlockFma) and accumulator.scaling != "none"
        factors = FloatOperands(
            node, attributes, operands, constant, self._room, lowering.floats, has_scales
        )
        compute = lowering.prepare(factors)
        named = hardware.spelling(rule.accumulator)
        tally = FloatTally.empty(named, None if operands is None else str(operands))
        runner = FloatRunner(accumulator, tally, zlib.crc32(node.key.encode()))
        self._runners[node.key] = runner
        self.rules[node.key] = replace(rule, operands=operands)

        def sums(inputs: Sequence[Value], run_operator: RunOperator) -> Sequence[Value]:
            reason = factors.misfit(inputs)
            if reason is not None:
                raise NoIntegerForm(reason)
            return compute(inputs, runner, run_operator)

        return sums

    def _resolved(
        self, node: Node, rule: Rule
    ) -> tuple[FloatAccumulator | BlockFma, OperandFormat | None]:
        """The accumulator for the operands of a node, and the format that they are cast to."""
        accumulator, operands = rule.accumulator, rule.operands
        if isinstance(accumulator, ByOperands):
            if operands is None:
                operands = self._format(node, accumulator)
            is_block = operands.scaling in BLOCKS
            chosen = accumulator.of(str(operands) if is_block else operands.format_name)
            assert isinstance(chosen, FloatAccumulator | BlockFma)
            return chosen, operands
        if isinstance(accumulator, BlockFma):
            return self._of_block(accumulator, operands)
        assert isinstance(accumulator, FloatAccumulator)
        return accumulator, operands

    def _of_block(
        self, accumulator: BlockFma, operands: OperandFormat | None
    ) -> tuple[BlockFma, OperandFormat]:
        """A block multiply-add of operands in a format, and the format."""
        if operands is None:
            operands = accumulator.operand_format
            self._chosen[str(accumulator), str(operands), "only format"] = None
            return accumulator, operands
        if operands.element is None:
            raise UsageError(
                f"'{accumulator}' has no model of operands in {operands}",
                f"Cast them to floats, as in {accumulator.operands}(tensor).",
            )
        scaling: Scaling = operands.scaling if operands.scaling in BLOCKS else "none"
        return replace(accumulator, operands=operands.element, scaling=scaling), operands

    def _format(self, node: Node, accumulator: ByOperands) -> OperandFormat:
        """The format of the graph if a device multiplies it, else the first one that it does."""
        tensor = self._types.of(node.inputs[0], node.scope)
        own = _GRAPH_FORMATS.get(tensor.dtype) if tensor is not None else None
        if own is not None and own in accumulator.accumulators:
            return operand_format(own)
        first, *others = accumulator.accumulators
        which = f"first of {len(others) + 1} formats" if others else "only format"
        self._chosen[str(accumulator), first, which] = None
        return operand_format(first)

    @cached_property
    def _types(self) -> TensorTypes:
        return infer(self._model, {})
