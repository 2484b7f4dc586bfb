"""Computes the sums of a model in narrow accumulators, and collects their statistics."""

from __future__ import annotations

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property, partial

import numpy as np

from tracer.accumulators import chains, hardware
from tracer.accumulators.engine.float_arithmetic import FloatOperands, FloatRunner
from tracer.accumulators.engine.integer_arithmetic import NodeOperands, NoIntegerForm
from tracer.accumulators.engine.node_pass import KeptPasses
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.multiplying import PARTLY, multiplies, reason_to_stay_wide
from tracer.accumulators.nodes import ComputeSums, RunOperator, float_lowerings, lowerings
from tracer.accumulators.spec import NARROWEST
from tracer.accumulators.spec.accumulator import Accumulator, ByOperands
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.operand_format import BLOCKS, OperandFormat, Scaling, operand_format
from tracer.accumulators.spec.policy import Policy, Rule
from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums, FloatTally
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.errors import ModelError, UsageError
from tracer.graph.model import Model, Node
from tracer.graph.shape_inference import TensorTypes
from tracer.interpreter import values
from tracer.interpreter.operators import Body, Kernel, MemoryBudget
from tracer.interpreter.plan import Plan, Task
from tracer.interpreter.values import Value
from tracer.shapes import infer
from tracer.support.types import Array

_GRAPH_FORMATS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
"""Formats of a graph's own types."""
Compute = Callable[[Sequence[Value], RunOperator], Sequence[Value]]
"""Computes the outputs of a node in its accumulator; raises NoIntegerForm for other operands."""
_THREAD_RUNNERS: ContextVar[Mapping[str, SumRunner] | None] = ContextVar("runners", default=None)
_LISTED = 6
"""Nodes that a note lists by name; it counts further nodes."""


class AccumulatorEmulation:
    """Computes the nodes that a policy names in their narrow accumulators.

    `Interpreter(wrap_kernel=emulation.wrap, fuse=emulation.fuse)` uses it; every run adds to the
    statistics. Outputs are the integer sums times their step, which sums of floats approximate, or
    the sums of float accumulators (`FloatModel`).
    Raises UsageError for an entry that matches no node, or an accumulator that does not multiply
    the operands of a node; ModelError for an entry whose nodes have no such arithmetic.
    """

    def __init__(self, model: Model, policy: Policy) -> None:
        self._model = model
        self._computing: dict[str, Compute] = {}
        self._quantized: dict[str, ComputeSums | None] = {}
        self._runners: dict[str, SumRunner] = {}
        self._unfit: dict[str, NoIntegerForm] = {}
        self._partly: dict[str, NoIntegerForm] = {}
        self._rules = policy.assign(model.nodes)
        self._scales = TensorScales(model)
        self._room = MemoryBudget()
        self._floats = FloatModel(model, self._scales, self._room)
        for node in model.nodes:
            if node.key in self._rules:
                self._prepare(node, self._rules[node.key])
        self._check()

    @property
    def notes(self) -> tuple[str, ...]:
        """Nodes of the policy whose sums, or some of them, are not in its accumulator, by reason.

        Nodes that multiply come first, apart from those that only add.
        """
        products = {node.key for node in self._model.nodes if multiplies(node)}
        integers = {key for key in self._unfit if self._has_integers(key)}

        def of(keys: Set[str]) -> Mapping[str, NoIntegerForm]:
            return {key: why for key, why in self._unfit.items() if key in keys}

        return (
            *self._floats.notes,
            *_notes_by_reason("not narrowed", of(integers & products)),
            *_notes_by_reason("partly narrowed", self._partly),
            *_notes_by_reason("not narrowed", of(integers - products)),
            *_notes_by_reason("stays wide", of(self._unfit.keys() - integers)),
        )

    @property
    def runners(self) -> Mapping[str, SumRunner]:
        """The runner of each node with an integer accumulator by key, in the order of the model."""
        return self._runners

    @property
    def float_rules(self) -> Mapping[str, Rule]:
        """The rules of the nodes with float accumulators by key, with the operands of each."""
        return self._floats.rules

    @property
    def float_sums(self) -> tuple[FloatPartialSums, ...]:
        """The statistics of the nodes with float accumulators, in the order of the model."""
        return self._floats.sums

    def new_runners(
        self, bits: Mapping[str, int], runner_type: type[SumRunner] = SumRunner
    ) -> dict[str, SumRunner]:
        """Returns runners without statistics, with other widths for the nodes in `bits`."""
        return {
            key: runner_type(
                replace(runner.accumulator, bits=bits.get(key, runner.accumulator.bits)),
                runner.passes,
            )
            for key, runner in self._runners.items()
        }

    @contextmanager
    def using(self, runners: Mapping[str, SumRunner]) -> Iterator[None]:
        """Uses `runners` for the runs that this thread starts, instead of the shared runners."""
        token = _THREAD_RUNNERS.set(runners)
        try:
            yield
        finally:
            _THREAD_RUNNERS.reset(token)

    def accumulations(
        self, runners: Mapping[str, SumRunner] | None = None
    ) -> Mapping[str, PartialSums]:
        """Returns the statistics of `runners` [default: the shared runners], by node key.

        They are in the order of the model, without nodes that have not run.
        """
        runners = self._runners if runners is None else runners
        return {
            node.key: _partial_sums(node.key, runners[node.key])
            for node in self._model.nodes
            if node.key in runners and runners[node.key].tally is not None
        }

    def wrap(self, node: Node, default: Kernel) -> Kernel:
        """Returns the kernel of `node`: `default` where the policy does not name the node."""
        compute = self._computing.get(node.key)
        if compute is None:
            return default

        def kernel(inputs: Sequence[Value], bodies: Mapping[str, Body]) -> Sequence[Value]:
            run_operator = partial(default, inputs, bodies)
            try:
                return compute(inputs, run_operator)
            except NoIntegerForm as reason:  # only the operands of a run say so
                self._unfit[node.key] = reason
                return run_operator()

        return kernel

    def fuse(self, plan: Plan) -> tuple[Sequence[Task], Mapping[str, Array]]:
        """Fuses the chains of a quantised graph, for `Interpreter(fuse=emulation.fuse)`."""
        return chains.fuse_plan(plan, self._scales, self._quantized, self._runner)

    def _runner(self, node: str) -> SumRunner:
        return (_THREAD_RUNNERS.get() or self._runners)[node]

    def _has_integers(self, key: str) -> bool:
        return isinstance(self._rules[key].accumulator, Accumulator)

    def _prepare(self, node: Node, rule: Rule) -> None:
        try:
            if self._has_integers(node.key):
                compute = self._integer_sums(node, rule)
            else:
                compute = self._floats.prepare(node, rule)
                if compute is not None:
                    self._quantized[node.key] = None
        except NoIntegerForm as reason:
            self._unfit[node.key] = reason
        else:
            if compute is not None:
                self._computing[node.key] = compute

    def _integer_sums(self, node: Node, rule: Rule) -> Compute | None:
        """Prepares a node for an integer accumulator; None if it adds nothing up."""
        lowering = lowerings().get((node.domain, node.op_type))
        if lowering is None:
            if not multiplies(node):
                return None
            why, remedy = reason_to_stay_wide(node)
            raise NoIntegerForm(why, remedy=remedy)
        attributes = {a.name: values.from_attribute(a) for a in node.proto.attribute}
        summing = lowering(NodeOperands(node, attributes, self._scales, rule.format))
        if node.op_type in PARTLY:
            self._partly[node.key] = NoIntegerForm(PARTLY[node.op_type])
        assert isinstance(rule.accumulator, Accumulator)
        self._quantized[node.key] = summing if rule.format is None else None
        self._runners[node.key] = SumRunner(rule.accumulator, KeptPasses(self._room))
        return lambda inputs, _: summing(inputs, self._runner(node.key)).outputs

    def _check(self) -> None:
        """Raises ModelError for an entry of the policy that narrows no node."""
        entries: dict[int, list[str]] = defaultdict(list)
        for key, rule in self._rules.items():
            entries[id(rule.accumulator)].append(key)
        for keys in entries.values():
            if not any(key in self._computing for key in keys):
                raise self._no_sums(keys)

    def _no_sums(self, keys: Sequence[str]) -> ModelError:
        unfit = self._unfit
        summing = [key for key in keys if key in unfit]
        node = next(n for n in self._model.nodes if n.key == (summing or keys)[0])
        where = f"{self._model.name}: node '{node.key}' ({node.qualified_type})"
        accumulator, is_integer = self._rules[node.key].accumulator, self._has_integers(node.key)
        if not summing:
            names = sorted({name for _, name in (lowerings() if is_integer else float_lowerings())})
            return ModelError(f"{where} adds nothing up", f"Operators that do: {', '.join(names)}.")
        if not is_integer:
            return ModelError(
                f"{where} cannot be summed in '{accumulator}': {unfit[node.key]}",
                "Set a width for sums of integers, such as 18.",
            )
        return ModelError(
            f"{where} has no integer arithmetic: {unfit[node.key]}",
            unfit[node.key].remedy
            or "Quantise the model, or set fixed-point formats for its float operands.",
        )


def _partial_sums(node: str, runner: SumRunner) -> PartialSums:
    assert runner.tally is not None
    accumulator = runner.accumulator
    bounds = [reduction.bounds(accumulator) for reduction in runner.reductions]
    channels = len(runner.tally.outputs)
    inner = [bound.inner_bits for bound in bounds if bound.inner_bits is not None]
    return PartialSums(
        node=node,
        tally=runner.tally,
        guaranteed=_widest([bound.bits for bound in bounds]),
        guaranteed_any_order=_widest([bound.any_order_bits for bound in bounds]),
        guaranteed_channels=_by_channel([bound.bits for bound in bounds], channels),
        datatype=max(reduction.datatype(accumulator) for reduction in runner.reductions),
        guaranteed_inner=_widest(inner) if inner else None,
        guaranteed_inner_channels=_by_channel(inner, channels) if inner else None,
    )


def _by_channel(widths: Sequence[Array], channels: int) -> Array:
    """Returns the largest widths (channels,); of all channels where their number changed."""
    if all(len(bits) in (1, channels) for bits in widths):
        return np.broadcast_to(np.max(np.broadcast_arrays(*widths), 0), channels)
    return np.broadcast_to(_widest(widths), channels)


def _widest(widths: Sequence[Array]) -> int:
    """Returns the largest width; there are no sums, and no widths, of no channels."""
    return max(int(bits.max(initial=NARROWEST)) for bits in widths)


def _notes_by_reason(what: str, unfit: Mapping[str, NoIntegerForm]) -> Iterator[str]:
    """Yields a note for each reason: nodes, and why.

    The reason of several nodes leaves out the name of an operand, which differs.
    """
    nodes: dict[str, list[str]] = defaultdict(list)
    for node, reason in unfit.items():
        nodes[reason.why].append(node)
    for why, keys in nodes.items():
        names = ", ".join(keys[:_LISTED])
        more = f" and {len(keys) - _LISTED} more" if len(keys) > _LISTED else ""
        yield f"{what}: {names}{more}: {unfit[keys[0]] if len(keys) == 1 else why}"


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
