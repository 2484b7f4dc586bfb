"""Computes the sums of a model in narrow accumulators, and collects their statistics."""

import zlib
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

from tracer.accumulators import chains, hardware
from tracer.accumulators.engine.float_arithmetic import FloatOperands, FloatRunner
from tracer.accumulators.engine.integer_arithmetic import NodeOperands, NoIntegerForm
from tracer.accumulators.engine.node_pass import KeptPasses
from tracer.accumulators.engine.sum_runner import SumRunner
from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.accumulators.nodes import ComputeSums, RunOperator, float_lowerings, lowerings, rules_of
from tracer.accumulators.spec import policy as policies
from tracer.accumulators.spec.accumulator import Accumulator, ByOperands
from tracer.accumulators.spec.block_fma import BlockFma
from tracer.accumulators.spec.float_accumulator import FloatAccumulator
from tracer.accumulators.spec.operand_format import BLOCKS, OperandFormat, Scaling, operand_format
from tracer.accumulators.statistics.float_partial_sums import FloatPartialSums, FloatTally
from tracer.accumulators.statistics.partial_sums import PartialSums
from tracer.errors import ModelError, UsageError
from tracer.graph import operators
from tracer.graph.model import Model, Node
from tracer.graph.shape_inference import TensorTypes
from tracer.interpreter import values
from tracer.interpreter.operators import Body, Kernel, MemoryBudget
from tracer.interpreter.plan import Plan, Task
from tracer.shapes import infer
from tracer.support.types import Array

_GRAPH_FORMATS = {"float32": "fp32", "float16": "fp16", "bfloat16": "bf16"}
"""Formats of a graph's own types."""
Compute = Callable[[Sequence[values.Value], RunOperator], Sequence[values.Value]]
"""Computes the outputs of a node in its accumulator; raises NoIntegerForm for other operands."""
_THREAD_RUNNERS: ContextVar[Mapping[str, SumRunner] | None] = ContextVar("runners", default=None)
_LISTED = 6
"""Nodes that a note lists by name; it counts further nodes."""
_LISTED_WEIGHTS = "weights are listed among the inputs: bits_guaranteed holds for any that are fed"


class AccumulatorEmulation:
    """Computes the nodes that a policy names in their narrow accumulators.

    `Interpreter(wrap_kernel=emulation.wrap, fuse=emulation.fuse)` uses it; every run adds to the
    statistics. Outputs are the integer sums times their step, which sums of floats approximate, or
    the sums of float accumulators.
    Raises UsageError for an entry that matches no node, or an accumulator that does not multiply
    the operands of a node; ModelError for an entry whose nodes have no such arithmetic.
    """

    def __init__(self, model: Model, policy: policies.Policy) -> None:
        self._model = model
        self._computing: dict[str, Compute] = {}
        self._quantized: dict[str, ComputeSums | None] = {}
        self.runners: dict[str, SumRunner] = {}
        """The runner of each node with an integer accumulator by key, in the order of the model."""
        self._float_runners: dict[str, FloatRunner] = {}
        self._unfit: dict[str, NoIntegerForm] = {}
        self._partly: dict[str, NoIntegerForm] = {}
        self._chosen: dict[tuple[str, str, str], None] = {}
        self._rules = rules_of(policy, model)
        self._scales = TensorScales(model)
        self._room = MemoryBudget()
        """Bytes for constants that are kept: prepared, or cast once."""
        self.float_rules: dict[str, policies.Rule] = {}
        """The rules of the nodes with float accumulators by key, with the operands of each."""
        for node in model.nodes:
            try:
                compute = self._prepare(node) if node.key in self._rules else None
            except NoIntegerForm as reason:
                self._unfit[node.key] = reason
            else:
                if compute is not None:
                    self._computing[node.key] = compute
        self._check(policies.first_matches(policy.accumulators, model.nodes))

    @property
    def notes(self) -> tuple[str, ...]:
        """Formats of operands that nobody set, for they follow from the accumulator, and nodes of
        the policy whose sums, or some of them, are not in its accumulator, by reason.

        Nodes that multiply come first, apart from those that only add.
        """
        products = {node.key for node in self._model.nodes if operators.multiplies(node)}
        integers = {
            key for key in self._unfit if isinstance(self._rules[key].accumulator, Accumulator)
        }

        def of(keys: Set[str]) -> Mapping[str, NoIntegerForm]:
            return {key: why for key, why in self._unfit.items() if key in keys}

        return (
            *(
                f"operands of {accumulator} are cast to {operands}, the {which} that it multiplies"
                for accumulator, operands, which in self._chosen
            ),
            *_notes_by_reason("not narrowed", of(integers & products)),
            *_notes_by_reason("partly narrowed", self._partly),
            *_notes_by_reason("not narrowed", of(integers - products)),
            *_notes_by_reason("stays wide", of(self._unfit.keys() - integers)),
            *([_LISTED_WEIGHTS] if self._scales.changeable and self._computing else []),
        )

    @property
    def float_sums(self) -> tuple[FloatPartialSums, ...]:
        """The statistics of the nodes with float accumulators, in the order of the model.

        Nodes that have not run are left out.
        """
        return tuple(
            FloatPartialSums(key, runner.tally)
            for key, runner in self._float_runners.items()
            if runner.has_run
        )

    def new_runners(
        self, bits: Mapping[str, int], runner_type: type[SumRunner] = SumRunner
    ) -> dict[str, SumRunner]:
        """Returns runners without statistics, with other widths for the nodes in `bits`."""
        return {
            key: runner_type(
                replace(runner.accumulator, bits=bits.get(key, runner.accumulator.bits)),
                runner.passes,
            )
            for key, runner in self.runners.items()
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
        runners = self.runners if runners is None else runners
        return {
            node.key: sums
            for node in self._model.nodes
            if node.key in runners
            and (sums := runners[node.key].partial_sums(node.key)) is not None
        }

    def wrap(self, node: Node, default: Kernel) -> Kernel:
        """Returns the kernel of `node`: `default` where the policy does not name the node."""
        compute = self._computing.get(node.key)
        if compute is None:
            return default

        def kernel(
            inputs: Sequence[values.Value], bodies: Mapping[str, Body]
        ) -> Sequence[values.Value]:
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
        return (_THREAD_RUNNERS.get() or self.runners)[node]

    def _prepare(self, node: Node) -> Compute | None:
        """Prepares a node for its accumulator; None if it adds nothing up."""
        rule, operator = self._rules[node.key], (node.domain, node.op_type)
        attributes = values.attributes_of(node.proto)
        if isinstance(rule.accumulator, Accumulator):
            lowering = lowerings().get(operator)
            if lowering is not None:
                summing = lowering(NodeOperands(node, attributes, self._scales, rule.format))
                if node.op_type in operators.PARTLY:
                    self._partly[node.key] = NoIntegerForm(operators.PARTLY[node.op_type])
                self._quantized[node.key] = summing if rule.format is None else None
                self.runners[node.key] = SumRunner(rule.accumulator, KeptPasses(self._room))
                return lambda inputs, _: summing(inputs, self._runner(node.key)).outputs
        else:
            prepare = float_lowerings().get(operator)
            if prepare is not None:
                operands, runner = self._float_operands(node, rule, attributes)
                compute = prepare(operands)
                self._float_runners[node.key] = runner
                self.float_rules[node.key] = replace(rule, operands=operands.format)
                self._quantized[node.key] = None
                return lambda inputs, run_operator: compute(inputs, runner, run_operator)
        if not operators.multiplies(node):
            return None
        if isinstance(rule.accumulator, Accumulator):
            why, remedy = operators.reason_to_stay_wide(node)
            raise NoIntegerForm(why, remedy=remedy)
        names = sorted({name for _, name in float_lowerings()})
        raise NoIntegerForm(f"float accumulators add products of {', '.join(names)} alone")

    def _float_operands(
        self, node: Node, rule: policies.Rule, attributes: Mapping[str, Any]
    ) -> tuple[FloatOperands, FloatRunner]:
        """Returns the operands of a node in the format of its accumulator, and its runner.

        Raises UsageError for an accumulator that does not multiply the operands that are set.
        """
        accumulator, operands = rule.accumulator, rule.operands
        if isinstance(accumulator, ByOperands):
            operands = operands or self._format(node, accumulator)
            is_block = operands.scaling in BLOCKS
            accumulator = accumulator.of(str(operands) if is_block else operands.format_name)
        elif isinstance(accumulator, BlockFma) and operands is None:
            operands = accumulator.operand_format
            self._chosen[str(accumulator), str(operands), "only format"] = None
        elif isinstance(accumulator, BlockFma) and operands is not None:
            if operands.element is None:
                raise UsageError(
                    f"'{accumulator}' has no model of operands in {operands}",
                    f"Cast them to floats, as in {accumulator.operands}(tensor).",
                )
            scaling: Scaling = operands.scaling if operands.scaling in BLOCKS else "none"
            accumulator = replace(accumulator, operands=operands.element, scaling=scaling)
        assert isinstance(accumulator, FloatAccumulator | BlockFma)
        constant = frozenset(
            index
            for index, name in enumerate(node.inputs)
            if name and self._scales.constant(name, node.scope)
        )
        has_scales = isinstance(accumulator, BlockFma) and accumulator.scaling != "none"
        named = hardware.spelling(rule.accumulator)
        tally = FloatTally.empty(named, None if operands is None else str(operands))
        return (
            FloatOperands(node, attributes, operands, constant, self._room, has_scales),
            FloatRunner(accumulator, tally, zlib.crc32(node.key.encode())),
        )

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

    def _check(self, matches: Mapping[str, policies.Entry[Any]]) -> None:
        """Raises ModelError for an entry of the policy that narrows no node."""
        entries: dict[str, list[str]] = defaultdict(list)
        for key, entry in matches.items():
            entries[entry.text].append(key)
        for keys in entries.values():
            if any(key in self._computing for key in keys):
                continue
            # a reason with a remedy of its own is about a node that could add integers
            summing = [key for key in keys if key in self._unfit]
            summing.sort(key=lambda key: not self._unfit[key].remedy)
            node = next(n for n in self._model.nodes if n.key == (summing or keys)[0])
            where = f"{self._model.name}: node '{node.key}' ({node.qualified_type})"
            accumulator, unfit = self._rules[node.key].accumulator, self._unfit.get(node.key)
            is_integer = isinstance(accumulator, Accumulator)
            if unfit is None:
                known = lowerings() if is_integer else float_lowerings()
                names = ", ".join(sorted({name for _, name in known}))
                raise ModelError(f"{where} adds nothing up", f"Operators that do: {names}.")
            if not is_integer:
                raise ModelError(
                    f"{where} cannot be summed in '{accumulator}': {unfit}",
                    "Set a width for sums of integers, such as 18.",
                )
            raise ModelError(
                f"{where} has no integer arithmetic: {unfit}",
                unfit.remedy
                or "Quantise the model, or set fixed-point formats for its float operands.",
            )


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
