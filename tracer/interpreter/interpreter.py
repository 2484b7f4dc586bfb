"""Runs any ONNX graph node by node in numpy: the reference interpreter.

`Execution` runs one plan: it reads each step's inputs, calls its kernel, and frees values after
their last use.
"""

import copy
import warnings
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import onnx

from tracer import limits
from tracer.containment import activity, memory
from tracer.errors import InputError, LimitError, ModelError, TracerError, UsageError
from tracer.graph import stored_weights, tensor_type
from tracer.graph.loading import OnnxSource, open_model
from tracer.graph.model import Model, Node, describe
from tracer.graph.user_operators import Operators
from tracer.interpreter import values
from tracer.interpreter.compiled_code import announced
from tracer.interpreter.fallback import Fallback, note
from tracer.interpreter.numeric import compiled, parallel, tensors
from tracer.interpreter.observers import Observer
from tracer.interpreter.operators import Body, Operator, registry_of
from tracer.interpreter.plan import BoundPlan, Fuse, Plan, Planner, Step, WrapKernel, fused
from tracer.interpreter.values import Value
from tracer.limits import Limits, enforced
from tracer.support.types import dtype_text, type_text
from tracer.text import suggest


class Interpreter:
    """Runs a model with numpy semantics; the same inputs give the same bits.

    Constructing an interpreter prepares every node once. Running it calls, for each node in order:

        __init__                      one kernel per node:
          Planner.plan                  the caller's operators, the model's functions, `ops/`,
                                        onnx.reference, the operator's function body,
                                        `fallback`, another runtime
            wrap_kernel(node, kernel)   replaces any kernel, as `tracer.accumulators` does
        run(output_names, feeds)
          Execution.graph             one graph: the main graph, a body or a function
            observer.before(node, inputs)
            kernel(inputs, bodies)      a body calls Execution.graph again
            observer.after(node, inputs, outputs)

    To watch a run, give it an `Observer`. This one prints the largest output of every node:

        class Largest:
            def before(self, node, inputs):
                pass

            def after(self, node, inputs, outputs):
                print(node.key, outputs[0].max())

        Interpreter("model.onnx", observers=[Largest()]).run(None, {"x": x})

    `after` may return other outputs, which then replace the node's own.

    To add an operator, write three files: a function in `tracer/interpreter/ops/`, a rule in
    `analyzers/cost/rules/`, and a test. `operators` adds operators to one interpreter only, and
    takes precedence over all others: a list of `Operator`, a `tracer.Operators`, or the file that
    makes one, whose code is then run.

    >>> import numpy as np, tracer
    >>> images = np.zeros((2, 3, 32, 32), np.float32)
    >>> tracer.Interpreter("models/lenet/lenet.onnx").run(None, {"x": images})[0].shape
    (2, 10)
    """

    def __init__(
        self,
        model: OnnxSource,
        *,
        operators: Iterable[Operator] | Operators | str | Path = (),
        wrap_kernel: WrapKernel | None = None,
        fuse: Fuse | None = None,
        fallback: Fallback | None = None,
        observers: Iterable[Observer] = (),
        limits: Limits | None = None,
        threads: int | None = None,
        progress: activity.Progress | None = None,
        late_kernels: bool = False,
    ) -> None:
        """Raises ModelError for operators without implementation and for broken weights.

        `fallback` computes the nodes of such operators; see `tracer.interpreter.fallback`.

        `limits` bound each run. `threads`, of which at most one runs for each processor, defaults
        to the thread count of BLAS. `progress` is called while kernels are compiled. Without
        observers, the plan that `fuse` makes is run.

        With `late_kernels`, numpy computes until compiled kernels, which may not be kept yet, pay
        for it: a small model takes less time, and the last bits may differ from run to run.
        """
        self.model = open_model(model)
        self.limits = limits or Limits()
        self._own_bytes = stored_weights.given_bytes(self.model, ())
        self.peak_bytes: int | None = None
        self._threads = threads
        self._memory: list[tensors.Pool] = []
        self._progress = progress
        given = operators if isinstance(operators, Operators | str | Path) else tuple(operators)
        self._overridable = frozenset(
            value.name for value in stored_weights.overridable(self.model)
        )
        self._overriding: dict[frozenset[str], Interpreter] = {}
        self._settings: dict[str, Any] = {
            "operators": given, "wrap_kernel": wrap_kernel, "fuse": fuse, "fallback": fallback,
            "limits": self.limits, "late_kernels": late_kernels,
        }  # fmt: skip
        self._patience = compiled.patience() if late_kernels else None
        self._observers = tuple(observers)
        with enforced(self.limits.in_proportion(self._own_bytes)):
            own = registry_of(given, self.model.operators)
            planner = Planner(self.model, own, self.model.folder, wrap_kernel, fallback)
            self._whole = planner.plan()
            self._fused = self._whole if fuse is None else fused(self._whole, fuse)
        self.notes: tuple[str, ...] = ()
        """What a reader of the results should know: which nodes the `fallback` computes."""
        if fallback is not None and planner.uncomputed:
            self.notes = (note(planner.uncomputed, fallback),)

    def with_observers(self, *observers: Observer) -> "Interpreter":
        """Returns the same prepared model with other observers."""
        clone = copy.copy(self)
        clone._observers = observers
        return clone

    def with_threads(self, threads: int) -> "Interpreter":
        """Returns the same prepared model, run on another number of threads."""
        clone = copy.copy(self)
        clone._threads = threads
        return clone

    def get_inputs(self) -> tuple[onnx.ValueInfoProto, ...]:
        """Returns the inputs to feed, as the model declares them."""
        return self.model.inputs

    def get_outputs(self) -> tuple[onnx.ValueInfoProto, ...]:
        """Returns the outputs, as the model declares them."""
        return tuple(self.model.graph.output)

    @property
    def _plan(self) -> Plan:
        """Observers see every node."""
        return self._whole if self._observers else self._fused

    @property
    def steps(self) -> tuple[Node, ...]:
        """The nodes of the main graph in the order they run; the first of each fused task."""
        return tuple(step.node for step in self._plan.steps)

    def run(self, output_names: Sequence[str] | None, feeds: Mapping[str, Value]) -> list[Value]:
        """Returns the named outputs (None: all, in order) for `feeds` by input name.

        Afterwards `peak_bytes` holds the most bytes that inputs, outputs and intermediate tensors
        occupied at one time. Raises InputError for feeds that do not fit the model, ModelError
        for a node that cannot be computed, LimitError for a run beyond its limits.
        """
        unknown = sorted(set(output_names or ()) - set(self._plan.outputs))
        if unknown:
            raise UsageError(
                f"{self.model.name} has no output '{unknown[0]}'",
                f"{suggest(unknown[0], self._plan.outputs)}Its outputs: "
                f"{', '.join(self._plan.outputs)}.",
            )
        names = self._plan.outputs if output_names is None else output_names
        fed = self._overridable.intersection(feeds)
        if fed:  # weights that the model lists among its inputs
            if fed not in self._overriding:
                fed_weights = stored_weights.with_fed_weights(self.model, fed)
                self._overriding[fed] = Interpreter(fed_weights, **self._settings)
            prepared = self._overriding[fed].with_observers(*self._observers)
            prepared._threads = self._threads
            overridden = prepared.run(names, feeds)
            self.peak_bytes = prepared.peak_bytes
            return overridden
        inputs = self._inputs(feeds)
        with self._running(inputs) as execution:
            outputs = execution.graph(self._plan, inputs)
        by_name = dict(zip(self._plan.outputs, outputs, strict=True))
        return [  # a copy of what is a view of a weight or of a feed
            value.copy() if isinstance(value, np.ndarray) and not value.flags.writeable else value
            for value in (by_name[name] for name in names)
        ]

    def begin(self, feeds: Mapping[str, Value]) -> dict[str, Value]:
        """Returns the values alive before the first step. Raises the errors of `run`."""
        return dict(zip(self._plan.inputs, self._inputs(feeds), strict=True))

    def advance(
        self, alive: Mapping[str, Value], start: int, stop: int | None = None
    ) -> dict[str, Value]:
        """Runs the steps from `start` up to `stop` (None: the last); returns the values alive then.

        `alive` holds the values alive before `start`. Outputs of the graph stay alive. The result
        may be used for several continuations; its arrays must not be modified.
        """
        last = len(self._plan.steps) if stop is None else stop
        with self._running(alive.values()) as execution:
            return execution.part(self._plan, alive, start, last)

    def outputs(self, alive: Mapping[str, Value]) -> list[Value]:
        """Returns the graph's outputs from the values alive after the last step."""
        return [
            alive.get(name, self._plan.template[slot])
            for name, slot in zip(self._plan.outputs, self._plan.output_slots, strict=True)
        ]

    @contextmanager
    def _running(self, given: Iterable[Value]) -> "Iterator[Execution]":
        nbytes = self._own_bytes + sum(map(values.nbytes, given))
        with (
            activity.doing(self.model.name, "the interpreter ran the model", patient=True),
            enforced(self.limits.in_proportion(nbytes)) as budget,
            parallel.threads(self._threads and min(self._threads, memory.processor_count())),
            announced(self._progress),
            compiled.loaded_late(self._patience),
            tensors.pooled(self._memory),
            # an operator that no complex number fits would drop the imaginary part, and go on
            warnings.catch_warnings(action="error", category=np.exceptions.ComplexWarning),
        ):
            yield Execution(self.model, self._observers, budget)
        self.peak_bytes = budget.peak

    def _inputs(self, feeds: Mapping[str, Value]) -> list[Value]:
        declared = {value.name: value for value in self.model.inputs}
        unknown = sorted(set(feeds) - set(declared))
        if unknown:
            raise InputError(
                f"{self.model.name} has no input '{unknown[0]}'",
                f"{suggest(unknown[0], declared)}Its inputs: {', '.join(declared) or 'none'}.",
            )
        missing = [n for n, v in declared.items() if n not in feeds
                   and v.type.WhichOneof("value") != "optional_type"]  # fmt: skip
        if missing:
            raise InputError(f"{self.model.name}: input '{missing[0]}' is missing")
        return [self._input(value, feeds.get(name)) for name, value in declared.items()]

    def _input(self, declared: onnx.ValueInfoProto, value: Value) -> Value:
        type_ = tensor_type.from_type_proto(declared.type)
        if type_ is None:
            return value
        array = np.asarray(value)
        if array.dtype.kind in "US":
            array = array.astype(object)
        if not array.flags.aligned:  # compiled code takes no other
            array = array.copy()
        array = array.view()
        array.flags.writeable = False  # no operator can modify the caller's array
        fed = tensor_type.TensorType(dtype_text(array), array.shape)
        fits = type_.shape is None or (len(array.shape) == len(type_.shape) and all(
            size == dim or not isinstance(dim, int)
            for size, dim in zip(array.shape, type_.shape, strict=True)
        ))  # fmt: skip
        if fed.dtype != type_.dtype or not fits:
            raise InputError(
                f"input '{declared.name}' of {self.model.name} is {type_}, but {fed} was fed"
            )
        return array


class Execution:
    """Runs plans of one model within a budget; calls the observers around each node.

    A value is an item of a list, at the slot that the plan gave it.
    """

    def __init__(self, model: Model, observers: Sequence[Observer], budget: limits.Budget) -> None:
        self._model = model
        self._observers = observers
        self._budget = budget
        self._timed = budget.limits.seconds is not None
        self._errors = np.geterr()
        self._located = False

    def graph(
        self, plan: Plan, inputs: Sequence[Value], captured: Sequence[tuple[int, Value]] = ()
    ) -> list[Value]:
        """Runs a graph; optional inputs at the end may be missing. Returns its outputs in order.

        `captured` are slots of the plan with their values of the outer graph.
        """
        if len(inputs) > len(plan.inputs):
            raise ModelError(f"a body with {len(plan.inputs)} inputs got {len(inputs)}")
        alive = plan.template.copy()
        for slot, value in captured:
            alive[slot] = value
        for name, value in zip(plan.inputs, inputs, strict=False):
            self._store(alive, plan.slots[name], value)
        with self._budget.nested(), np.errstate(all="ignore"):
            self._run(plan.steps, alive)
        self._budget.release(sum(values.nbytes(alive[slot]) for slot in plan.kept))
        return [alive[slot] for slot in plan.output_slots]

    def part(
        self, plan: Plan, before: Mapping[str, Value], start: int, stop: int
    ) -> dict[str, Value]:
        """Runs steps `start` to `stop` - 1; returns the values alive afterwards."""
        alive = plan.template.copy()
        for name, value in before.items():
            self._store(alive, plan.slots[name], value)
        with self._budget.nested(), np.errstate(all="ignore"):
            self._run(plan.steps[start:stop], alive)
        return {n: alive[slot] for n, slot in plan.slots.items() if alive[slot] is not None}

    def _store(self, alive: list[Value], slot: int, value: Value) -> None:
        if not isinstance(value, np.ndarray):
            value = _plain(value)
        alive[slot] = value
        self._budget.hold(values.nbytes(value))

    def _run(self, steps: Sequence[Step], alive: list[Value]) -> None:
        """Runs steps; adds nodes, operators, opset and input types to whatever a step raises."""
        observed = bool(self._observers)
        for step in steps:
            inputs = [alive[slot] for slot in step.reads]
            if observed:
                with np.errstate(**self._errors):
                    for observer in self._observers:
                        observer.before(step.node, inputs)
            try:
                if self._timed:
                    self._budget.clock()
                if step.kernel is not None:
                    outputs = step.kernel(inputs, _NO_BODIES)
                else:
                    outputs = self._nested(step, inputs, alive)
                if len(outputs) < step.needed:
                    raise ModelError(f"{step.needed} outputs expected, {len(outputs)} computed")
            except Exception as error:
                raise self._failure(step, inputs, error) from error
            if observed:
                outputs = self._after(step, inputs, outputs)
            try:
                for position, slot in step.writes:
                    self._store(alive, slot, outputs[position])
            except LimitError as error:
                raise self._failure(step, inputs, error) from error
            for slot in step.frees:
                self._budget.release(values.nbytes(alive[slot]))
                alive[slot] = None

    def _nested(self, step: Step, inputs: Sequence[Value], alive: list[Value]) -> Sequence[Value]:
        """Computes a task that runs other graphs: a function, or a kernel with bodies."""
        task = step.task
        if task.expand is not None:
            return self.graph(task.expand(inputs), inputs)
        assert task.kernel is not None
        bodies = {name: self.body(bound, alive) for name, bound in step.bodies.items()}
        return task.kernel(inputs, bodies)

    def body(self, bound: BoundPlan, around: Sequence[Value]) -> Body:
        """Returns a body of a node, bound to the values around the node."""
        plan = bound.plan

        def run(*inputs: Value) -> list[Value]:
            captured = [(inside, around[outside]) for outside, inside in bound.links]
            return self.graph(plan, inputs, captured)

        return Body(plan.inputs, plan.outputs, plan.types, run)

    def _after(
        self, step: Step, inputs: Sequence[Value], outputs: Sequence[Value]
    ) -> Sequence[Value]:
        """Returns the outputs as the observers replace them."""
        outputs = [_plain(value) for value in outputs]
        with np.errstate(**self._errors):
            for observer in self._observers:
                replaced = observer.after(step.node, inputs, outputs)
                outputs = outputs if replaced is None else list(replaced)
        return outputs

    def _failure(self, step: Step, inputs: Sequence[Value], error: Exception) -> Exception:
        """Returns the error with its place, unless a step inside this one has named its own."""
        if self._located:
            return error
        self._located = True
        where = describe(self._model, step.task.nodes, step.task.opset)
        named = zip(step.task.reads, inputs, strict=True)
        types = ", ".join(f"{n}: {type_text(v)}" for n, v in named if n)
        where = f"{where} with {types or 'no inputs'}"
        if isinstance(error, TracerError):
            return type(error)(f"{where}: {error.what}", error.hint)
        if isinstance(error, MemoryError):
            return memory.out_of_memory(f"{where}: out of memory")
        return ModelError(f"{where}: {error or type(error).__name__}")


def _plain(value: Value) -> Value:
    """Returns a numpy scalar as an array of rank 0."""
    return np.asarray(value) if isinstance(value, np.generic) else value


_NO_BODIES: Mapping[str, Body] = {}
