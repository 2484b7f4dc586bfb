"""A kernel of onnxruntime as a black box, one node of the graph that runs, and its rule."""

import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import product
from typing import Any, Protocol

import msgspec
import numpy as np
import onnx
import onnxruntime as ort
from onnx import helper, numpy_helper

from tracer.errors import TracerError
from tracer.executors.onnxruntime import feeding, sessions
from tracer.graph.loading import open_model
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.operators import registry_of
from tracer.interpreter.plan import Planner, Step
from tracer.support.types import Array, map_values

Inputs = Mapping[str, Array]
"""What a graph computes for a kernel, by name."""
_FATAL_ONLY = 4
_IR_VERSION = 10
_DENSE = 0.1
_FLOATS = (np.float16, np.float32, np.float64)
_SMALL = 16
"""Elements of constants that may choose how a kernel computes: axes, exponents, zero points."""


@dataclass(frozen=True)
class Kernel:
    """One node of the graph that onnxruntime runs, with the stored values among its inputs.

    `inputs` are the types and shapes of what the graph computes; `constants` what it stores: a
    kernel packs them when it is made. It runs as it stands, whatever its domain: nothing is
    optimised further. `fixed` are computed inputs that no random value would do for: indices,
    shapes, conditions.
    """

    node: onnx.NodeProto
    inputs: Mapping[str, tuple[np.dtype[Any], tuple[int, ...]]]
    constants: Mapping[str, Array]
    opsets: Mapping[str, int]
    threads: int = 1
    fixed: Mapping[str, Array] = field(default_factory=dict)

    @property
    def op_type(self) -> str:
        """The operator."""
        return self.node.op_type

    @cached_property
    def attributes(self) -> dict[str, Any]:
        """The attributes of the node; text as str."""
        values = {each.name: helper.get_attribute_value(each) for each in self.node.attribute}
        return {
            name: value.decode() if isinstance(value, bytes) else value
            for name, value in values.items()
        }

    def constant(self, position: int) -> Array | None:
        """Returns the stored value of the input at a position; None if there is none."""
        return self.constants.get(self._name(position))

    def shape(self, position: int) -> tuple[int, ...] | None:
        """Returns the shape of the input at a position; None of an input that is left out."""
        name = self._name(position)
        constant = self.constants.get(name)
        if constant is not None:
            return constant.shape
        return self.inputs[name][1] if name in self.inputs else None

    def values(self, inputs: Inputs) -> list[Any]:
        """Returns the arrays of all inputs, in the order of the node; None of those left out."""
        everything = {**self.constants, **inputs}
        return [everything[name] if name else None for name in self.node.input]

    def with_constants(self, values: Mapping[int, Array]) -> "Kernel":
        """Returns the kernel with other stored values, by position, of the same type and shape."""
        changed = {self._name(position): value for position, value in values.items()}
        return replace(self, constants={**self.constants, **changed})

    def with_inputs(self, shapes: Mapping[int, Sequence[int]]) -> "Kernel":
        """Returns the kernel for computed inputs of other shapes, by position."""
        names = {self._name(position): tuple(shape) for position, shape in shapes.items()}
        changed = {name: (self.inputs[name][0], shape) for name, shape in names.items()}
        return replace(self, inputs={**self.inputs, **changed})

    def without_attributes(self, *names: str) -> "Kernel":
        """Returns the kernel without some attributes, such as the activation that it ends with."""
        node = onnx.NodeProto()
        node.CopyFrom(self.node)
        kept = [each for each in node.attribute if each.name not in names]
        del node.attribute[:]
        node.attribute.extend(kept)
        return replace(self, node=node)

    def run(self, inputs: Inputs) -> list[Array]:
        """Returns the outputs that onnxruntime computes from inputs by name.

        Raises NotKnown if it refuses them.
        """
        feeds = {name: np.asarray(inputs[name], order="C") for name in self.inputs}
        try:
            ends = [*self._session.get_inputs(), *self._session.get_outputs()]
            if any(feeding.FOREIGN.fullmatch(each.type) for each in ends):
                outputs = feeding.runner(open_model(self.model()), self._session, feeds)()
            else:
                outputs = self._session.run(None, feeds)
        except Exception as error:
            if not sessions.is_onnxruntimes(error) and not isinstance(error, TracerError):
                raise
            message = " ".join(str(error).split())
            raise NotKnown(f"onnxruntime refuses random inputs: {message}") from error
        return [feeding.as_array(output) for output in outputs]

    def draw(
        self, random: np.random.Generator, turn: int = 0, scale: float = 1
    ) -> dict[str, Array]:
        """Returns random values of the computed inputs: floats are normal, integers from 0 to 99.
        Bytes are of their whole range; every third time the larger half is the largest: their sums
        may saturate.

        In turn, floats are drawn as they are, as a Relu leaves them, and with 9 of 10 at zero: sums
        of zeros alone tell what a sum begins with. Small integers fit any type, and most tables.
        What is fixed stays, unless the kernel takes inputs of another shape. `scale` multiplies
        floats.
        """
        drawn = {}
        for name, (dtype, shape) in self.inputs.items():
            fixed = self.fixed.get(name)
            if fixed is not None and fixed.shape == shape:
                values: Array = fixed
            elif dtype.kind == "b":
                values = random.integers(0, 2, shape)
            elif dtype in (np.int8, np.uint8):
                least, largest = np.iinfo(dtype).min, np.iinfo(dtype).max
                values = random.integers(least, largest, shape, endpoint=True)
                if turn % 3 == 1:
                    values = np.where(values > (least + largest) // 2, largest, values)
            elif dtype.kind in "iu":
                values = random.integers(0, 100, shape)
            else:
                values = random.standard_normal(shape) * scale
                if turn % 3 == 1:
                    values = np.maximum(values, 0)
                elif turn % 3 == 2:
                    values = values * (random.random(shape) < _DENSE)
            drawn[name] = values.astype(dtype)
        return drawn

    def draw_numbers(
        self, random: np.random.Generator, kind: str, are_few: bool
    ) -> dict[str, Array]:
        """Returns random values with one of `KINDS_OF_NUMBERS`: some, or all, of the largest inputs
        alone if they are few.
        """
        drawn = self.draw(random)
        largest = max((x.size for x in drawn.values() if x.dtype in _FLOATS), default=0)
        for name, x in drawn.items():
            if x.dtype not in _FLOATS or not x.size or (are_few and x.size < largest):
                continue
            limits, is_some = np.finfo(x.dtype), random.random(x.shape) < random.random() ** 2
            if are_few:
                is_some = random.random(x.shape) < 2 / x.size
            power = limits.maxexp - 4 if kind == "huge numbers" else limits.minexp - 6
            powers = np.ceil(power * random.random(x.shape)) if are_few else power
            if kind == "NaN":
                drawn[name] = np.where(is_some, np.nan, x).astype(x.dtype)
            elif kind == "infinities":
                drawn[name] = np.where(is_some, np.copysign(np.inf, x), x).astype(x.dtype)
            elif kind == "-0":
                drawn[name] = np.where(is_some | (not are_few), np.copysign(0, x), x).astype(
                    x.dtype
                )
            else:
                drawn[name] = np.ldexp(x, np.asarray(powers, int))
        return drawn

    @cached_property
    def key(self) -> str:
        """What kernels of one rule have in common, as a digest: all but names and weights."""
        node = onnx.NodeProto(op_type=self.op_type, domain=self.node.domain)
        node.attribute.extend(sorted(self.node.attribute, key=lambda each: each.name))
        inputs: list[object] = []
        for name in self.node.input:
            constant = self.constants.get(name)
            if constant is not None:
                # a small constant may choose how a kernel computes; weights do not
                is_small = constant.size <= _SMALL and constant.dtype.kind in "iub"
                values = constant.ravel().tolist() if is_small or constant.size == 1 else None
                inputs.append((constant.dtype.str, constant.shape, values))
            else:
                inputs.append((str(self.inputs[name][0]), self.inputs[name][1]) if name else None)
        outputs = [bool(name) for name in self.node.output]
        opset = self.opsets.get(self.node.domain)
        key = (node.SerializeToString(deterministic=True), inputs, outputs, opset, self.threads)
        return hashlib.sha256(repr(key).encode()).hexdigest()[:32]

    @property
    def is_fixed(self) -> bool:
        """Whether nothing is drawn at random: further runs would tell nothing."""
        return self.inputs.keys() == self.fixed.keys()

    @cached_property
    def interpreter(self) -> Interpreter:
        """The node in tracer's interpreter. Raises ModelError where that lacks the operator."""
        return Interpreter(self.model())

    def interpret(self, inputs: Inputs) -> list[Array]:
        """Returns the outputs that tracer's interpreter computes from inputs by name.

        Its kernel is called without what a run of a model prepares, which takes longer than most
        nodes. Raises ModelError for what the interpreter cannot compute.
        """
        steps = self._steps
        if len(steps) == 1 and steps[0].kernel is not None:
            try:
                with np.errstate(all="ignore"):
                    outputs = steps[0].kernel(self.values(inputs), {})
            except Exception:  # a run tells it by the node
                return list(self.interpreter.run(None, inputs))
            named = zip(self.node.output, outputs, strict=False)
            return [np.asarray(v) if isinstance(v, np.generic) else v for name, v in named if name]
        return list(self.interpreter.run(None, inputs))

    @cached_property
    def _steps(self) -> tuple[Step, ...]:
        model = open_model(self.model())
        return Planner(model, registry_of((), model.operators), None).plan().steps

    @cached_property
    def _session(self) -> Any:
        options = ort.SessionOptions()
        options.log_severity_level = _FATAL_ONLY
        options.intra_op_num_threads = self.threads
        options.graph_optimization_level = ort.GraphOptimizationLevel.ORT_DISABLE_ALL
        return ort.InferenceSession(
            self.model().SerializeToString(), options, providers=["CPUExecutionProvider"]
        )

    def model(self) -> onnx.ModelProto:
        """Returns the model of this node alone."""
        graph = helper.make_graph(
            [self.node],
            "kernel",
            [
                helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(dtype), shape)
                for name, (dtype, shape) in self.inputs.items()
            ],
            [onnx.ValueInfoProto(name=name) for name in self.node.output if name],
            [numpy_helper.from_array(value, name) for name, value in self.constants.items()],
        )
        opsets = [helper.make_opsetid(domain, version) for domain, version in self.opsets.items()]
        return helper.make_model(graph, opset_imports=opsets, ir_version=_IR_VERSION)

    def _name(self, position: int) -> str:
        return self.node.input[position] if position < len(self.node.input) else ""


KINDS_OF_NUMBERS = ("NaN", "infinities", "huge numbers", "tiny numbers", "-0")
"""Numbers that normal ones do not stand for: a rule may fail with them alone."""
_MOST_TURNS, _LEAST_OF_KIND = 24, 600
"""Runs with one of them; results of the smallest output that are enough after two runs."""
_UNTESTED = {
    "TopK": ("NaN",),  # which have no order: onnxruntime may sort beyond the end
    **dict.fromkeys(("MaxRoiPool", "Range", "RoiAlign", "CropAndResize"), KINDS_OF_NUMBERS),
}
"""Numbers that onnxruntime may crash with, or never end, where they are places or sizes."""
_SCALES = (1.887, 2.0**4, 2.0**-4, 2.0**8, 2.0**-8, 2.0**16, 2.0**-16)
"""Factors of floats, until results tell something; with the first, long products stay near 1."""
Facts = Mapping[str, Any]
LEAST_RESULTS = 10_000
"""Results with equal bits that a rule takes before it is claimed."""
_MOST_RUNS = 200
_NEARLY = float(np.nextafter(1.0, 0))


class Rule(msgspec.Struct, frozen=True):
    """How a kernel computes: `text` says it in a sentence, `facts` are what its replay needs.

    `facts` are plain data (JSON), so that rules can be stored and sent to another machine. `fails`
    are the kinds of numbers with which the replay has other bits.
    """

    text: str
    facts: dict[str, Any] = {}
    fails: tuple[str, ...] = ()


class NotKnown(Exception):  # noqa: N818 - no error: a result of looking
    """No rule fits what a kernel computes; the message is the reason."""


class Replay(Protocol):
    """How the kernels of some operators are revealed and replayed."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        """Yields rules that may be the kernel's, the likeliest first: `reveal` verifies each.

        Probes of the kernel narrow them down. Raises NotKnown with the reason if there can be none.
        """
        ...

    def replay(self, kernel: Kernel, facts: Facts, inputs: Inputs) -> list[Array]:
        """Returns the outputs that the kernel computes from inputs by name, by its rule."""
        ...


def reveal(replay: Replay, kernel: Kernel) -> Rule:
    """Returns the first candidate that equals the kernel in all bits of random results.

    Of several, it is the one that fails with the fewest kinds of numbers. Raises NotKnown if none
    is equal: the message has the candidate with most equal results.
    """
    reason, most, equal = "no rule fits", -1.0, list[Rule]()
    for rule in replay.candidates(kernel):
        share = share_of_equal(replay, kernel, rule)
        if share == 1:
            fails = failing_numbers(replay, kernel, rule)
            equal.append(msgspec.structs.replace(rule, fails=fails))
            if not fails:
                break
        elif share > most:
            shown = f"{share:.1%}" if share < 0.999 else "nearly all"
            reason, most = f"no rule fits; by '{rule.text}', {shown} of results are equal", share
    if not equal:
        raise NotKnown(reason)
    return min(equal, key=lambda rule: len(rule.fails))


def share_of_equal(replay: Replay, kernel: Kernel, rule: Rule) -> float:
    """Returns the share of equal results on random inputs, of 10,000 if all are equal so far.

    Replay and kernel run in turns; the first run that differs is the last. Raises NotKnown where
    all results are trivial.
    """
    random, seen, scales, scale = np.random.default_rng(0), 0, iter(_SCALES), 1.0
    for turn in range(_MOST_RUNS):
        inputs = kernel.draw(random, turn, scale)
        outputs, replayed = (
            parts(kernel.run(inputs)),
            parts(replay.replay(kernel, rule.facts, inputs)),
        )
        results = _equal_results(outputs, replayed)
        if not results.all():
            return min(float(np.mean(results)), _NEARLY)
        seen += sum(map(_count_telling, outputs))
        if seen >= LEAST_RESULTS or kernel.is_fixed or not results.size:
            break
        if not seen and turn % 3 == 2 and (scale := next(scales, 0)) == 0:
            raise NotKnown("all random results are 0, infinite or saturated, which proves no rule")
    return 1.0


def _equal_results(outputs: list[Array], replayed: list[Array]) -> Array:
    pairs = zip(outputs, replayed, strict=True)
    return np.concatenate([are_equal(*pair).ravel() for pair in pairs])


def _count_telling(results: Array) -> int:
    """Returns how many results could have been others: floats and bytes that no limit sets."""
    if results.dtype in _FLOATS:
        return int(np.count_nonzero(np.isfinite(results) & (results != 0)))
    if results.dtype not in (np.int8, np.uint8):
        return results.size
    limits = np.iinfo(results.dtype)
    inside = results[(results > limits.min) & (results < limits.max)]
    is_one = inside.size > 0 and inside.min() == inside.max()
    return 0 if is_one and results.size > 1 else inside.size


def failing_numbers(replay: Replay, kernel: Kernel, rule: Rule) -> tuple[str, ...]:
    """Returns the kinds of numbers with which a rule has not all bits of a kernel."""
    random, seen = np.random.default_rng(1), dict.fromkeys(KINDS_OF_NUMBERS, 0)
    fails = dict.fromkeys(_UNTESTED.get(kernel.op_type, ()))
    has_floats = any(dtype in _FLOATS for dtype, _ in kernel.inputs.values())
    for turn, kind in product(range(_MOST_TURNS * has_floats), KINDS_OF_NUMBERS):
        if kind in fails or (turn > 1 and seen[kind] >= _LEAST_OF_KIND):
            continue
        inputs = kernel.draw_numbers(random, kind, turn % 2 == 1)
        results = _results_of_numbers(replay, kernel, rule, inputs)
        if results is None:
            fails[kind] = None
        else:
            seen[kind] += results
    return tuple(fails)


def _results_of_numbers(replay: Replay, kernel: Kernel, rule: Rule, inputs: Inputs) -> int | None:
    """Returns how many results the smallest output has; None where one differs, or none is."""
    try:
        with np.errstate(all="ignore"):
            replayed = parts(replay.replay(kernel, rule.facts, inputs))
        outputs = parts(kernel.run(inputs))
    except (NotKnown, TracerError, ValueError, LookupError, ArithmeticError):
        return None  # the rule is for other numbers, or onnxruntime refuses these
    is_equal = _equal_results(outputs, replayed).all()
    return min(output.size for output in outputs) if is_equal else None


def kinds_of(values: Iterable[Any]) -> list[str]:
    """Returns which of `KINDS_OF_NUMBERS` are among arrays."""
    kinds = dict.fromkeys(KINDS_OF_NUMBERS, False)
    for each in values:
        if isinstance(each, np.ndarray) and each.dtype in _FLOATS:
            size, limits = np.abs(each), np.finfo(each.dtype)
            is_huge = size > np.cbrt(limits.max)  # sums of powers and of products may overflow
            is_tiny = (size < np.sqrt(limits.smallest_subnormal)) & (size > 0)  # or vanish
            is_minus_zero = (size == 0) & np.signbit(each)
            masks = (
                np.isnan(size), np.isinf(size), is_huge & (size < np.inf), is_tiny, is_minus_zero
            )  # fmt: skip
            for kind, mask in zip(KINDS_OF_NUMBERS, masks, strict=True):
                kinds[kind] |= bool(mask.any())
    return [kind for kind, is_there in kinds.items() if is_there]


def parts(value: Any) -> list[Array]:
    """Returns the tensors of a value: those of a sequence in turn, the keys and values of a map.

    Text has a type of a fixed width, so that its bytes say what it is; one NaN is like another.
    """
    if isinstance(value, dict):
        keys = sorted(value)  # a map has no order
        return [np.array(keys), map_values(value, keys)]
    if isinstance(value, list):
        return [part for each in value for part in parts(each)]
    array = np.asarray(value)
    if array.dtype.kind == "V" or array.dtype.name.startswith("float8"):  # as onnxruntime has it
        array = array.view(f"u{array.dtype.itemsize}")
    if array.dtype.kind == "f" and np.isnan(array).any():
        array = np.where(np.isnan(array), array.dtype.type(np.nan), array)
    return [array.astype(np.str_) if array.dtype.hasobject else array]


def are_equal(first: Array, second: Array) -> Array:
    """Returns which elements have equal bits, as an array; one NaN is like another."""
    if first.shape != second.shape or first.dtype != second.dtype:
        return np.zeros(1, bool)
    if first.dtype.kind != "f":
        return np.atleast_1d(first == second)
    bits = f"u{first.dtype.itemsize}"
    equal = np.ascontiguousarray(first).view(bits) == np.ascontiguousarray(second).view(bits)
    return np.atleast_1d(equal | (np.isnan(first) & np.isnan(second)))
