"""The work of one execution of an operator, and the rules that tell it.

A rule, in a module of `analyzers.cost.rules`, tells the work of an operator, and its bytes: each
input and output once, or as the rule says. It sees a node as an `Operation`: typed operands,
attributes, constants. Caches are not modelled: a tensor that one operator reads twice counts once.
"""

import importlib
import pkgutil
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import cache
from itertools import product
from operator import add
from typing import Any, NamedTuple, TypeAlias

import msgspec
import numpy as np
import onnx
import onnx.numpy_helper

from tracer.errors import UsageError
from tracer.graph.model import Address, Model, Node, Scope
from tracer.graph.shape_inference import TensorTypes
from tracer.graph.tensor_type import TensorType
from tracer.support.types import Array


class UnknownWorkError(Exception):
    """Raised by a rule for a node of unknown work; the text is the reason. Caught by `cost`."""


class UnknownShapeError(UnknownWorkError):
    """Raised for a node that needs the shape of `tensor`, a name, which is unknown."""

    def __init__(self, tensor: str) -> None:
        super().__init__(f"the shape of '{tensor}' is unknown")
        self.tensor = tensor


class MisfitError(Exception):
    """Raised by a rule for inputs that no run takes together. Caught by `cost`."""


def require(holds: bool) -> None:
    """Raises MisfitError for inputs of which something that a runtime asks for does not hold."""
    if not holds:
        raise MisfitError


@dataclass(frozen=True, slots=True)
class Count:
    """Elementary operations, each counted once.

    `macs` are multiply-accumulates; `adds` (also subtractions) and `muls` are further additions and
    multiplications. `other` is any other operation: a division, a comparison, one evaluation of a
    function such as exp. `channel_sums` is the number of partial sums per channel of a convolution,
    for conventions; it is no work by itself.
    """

    macs: int = 0
    adds: int = 0
    muls: int = 0
    other: int = 0
    channel_sums: int = 0

    @property
    def flops(self) -> int:
        """Two per MAC and one per other operation, in every convention."""
        return 2 * self.macs + self.adds + self.muls + self.other

    @property
    def _fields(self) -> tuple[int, ...]:  # `astuple` copies, and takes ten times as long
        return self.macs, self.adds, self.muls, self.other, self.channel_sums

    def checked(self) -> "Count":
        """Returns itself. Raises ValueError if an attribute made a count negative."""
        if min(self._fields) < 0:
            raise ValueError("a count below zero")
        return self

    def __add__(self, more: "Count") -> "Count":
        return Count(*map(add, self._fields, more._fields))

    def __mul__(self, times: int) -> "Count":
        return Count(*[value * times for value in self._fields])


NOTHING = Count()
"""The work of an operator that only moves, views or describes data."""


Convention = Callable[[Count], int]
"""Returns the additions of a count, including the additions of its MACs."""


def plain(count: Count) -> int:
    """Counts one addition per MAC: every sum is accumulated from zero."""
    return count.macs + count.adds


def channelwise(count: Count) -> int:
    """Sums the window of each input channel from zero, then the channel sums from zero.

    A convolution over C channels and K weights has K + C additions per output. Other operators
    count as in `plain`.
    """
    return plain(count) + count.channel_sums


CONVENTIONS: dict[str, Convention] = {"plain": plain, "channelwise": channelwise}


def find_convention(name: str) -> Convention:
    """Returns the convention called `name`. Raises UsageError for an unknown one."""
    if name not in CONVENTIONS:
        allowed = ", ".join(CONVENTIONS)
        raise UsageError(f"no counting convention is called '{name}'", f"Choose one of: {allowed}.")
    return CONVENTIONS[name]


LARGEST = 2**63 - 1
"""Counts are 64-bit integers; larger ones are unknown."""


class Operand(NamedTuple):
    """A tensor that a node reads or writes; None is unknown."""

    name: str
    dtype: str | None
    known_shape: tuple[int, ...] | None
    known_size: int | None
    nbytes: int | None
    """Bytes of the packed elements; None if size or width are unknown, or beyond 64 bits."""

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape. Raises UnknownShapeError if a dimension is unknown."""
        if self.known_shape is None:
            raise UnknownShapeError(self.name)
        return self.known_shape

    @property
    def size(self) -> int:
        """Number of elements. Raises UnknownShapeError if a dimension is unknown."""
        if self.known_size is None:
            raise UnknownShapeError(self.name)
        return self.known_size


Bytes = int | None


def operand(name: str, tensor: TensorType) -> Operand:
    """Returns the tensor `name` of this type."""
    shape = tensor.concrete
    if shape is None or min(shape, default=0) < 0:  # inferred from odd attributes
        return Operand(name, tensor.dtype, None, None, None)
    nbytes = tensor.nbytes
    known = nbytes is not None and nbytes <= LARGEST
    return Operand(name, tensor.dtype, shape, tensor.size, nbytes if known else None)


@dataclass(frozen=True)
class Facts:
    """Types and constants of the tensors of a model, with a cache of operands."""

    types: TensorTypes
    opsets: Mapping[str, int]
    constants: Mapping[Address, onnx.NodeProto]
    """The Constant node behind each name that has one."""
    own_rules: Mapping[tuple[str, str], Callable[..., object]] = field(default_factory=dict)
    """The counting rules of the user's own operators, by domain and name."""
    looked_up: list[Address] = field(default_factory=list)
    """Every tensor whose values were asked for."""
    _operands: dict[Address, Operand] = field(default_factory=dict)
    _sizes: dict[int, Bytes] = field(default_factory=dict)
    """The bytes of tensors by the identity of their type, which `types` keeps."""

    def operand(self, name: str, scope: Scope) -> Operand:
        """Returns the tensor that `name` means in `scope`."""
        address = (scope.path, name)
        found = self._operands.get(address)
        if found is None:
            tensor = self.types.of(name, scope)
            found = self._operands[address] = (
                Operand(name, None, None, None, None) if tensor is None else operand(name, tensor)
            )
        return found

    def nbytes(self, names: Iterable[str], scope: Scope) -> Bytes:
        """Returns the bytes of all these tensors, or None if one is unknown."""
        known: list[Bytes] = []
        for name in filter(None, names):
            kind = self.types.of(name, scope)
            if id(kind) not in self._sizes:
                self._sizes[id(kind)] = self.operand(name, scope).nbytes
            known.append(self._sizes[id(kind)])
        return known_sum(known)

    def value(self, name: str, scope: Scope) -> np.ndarray | None:
        """Returns the values of a constant; None if they depend on data, or are not in the file."""
        self.looked_up.append((scope.path, name))
        weight = self.types.weight(name, scope)
        if weight is None:
            computed = self.types.value(name, scope)
            return self._constant_node(name, scope) if computed is None else computed
        if weight.external_data:
            return None
        try:
            return onnx.numpy_helper.to_array(weight)
        except ValueError:  # it has fewer values than its shape says
            return None

    def _constant_node(self, name: str, scope: Scope) -> np.ndarray | None:
        for outer in scope.outward():
            node = self.constants.get((outer.path, name))
            if node is not None and len(node.attribute) == 1:
                value = onnx.helper.get_attribute_value(node.attribute[0])
                if isinstance(value, onnx.TensorProto):
                    return None if value.external_data else onnx.numpy_helper.to_array(value)
                return np.asarray(value) if isinstance(value, (int, float, list)) else None
        return None


Signature: TypeAlias = tuple[Any, ...]
_LARGE = 2000
"""Bytes of a node from which its signature takes longer than its rule: it has bodies, or tables."""
_ABSENT = onnx.AttributeProto()
"""Stands for an attribute that is left out: its lists are empty."""


class Operation(msgspec.Struct, frozen=True):
    """A node with typed operands; reading an unknown fact raises UnknownWorkError."""

    node: Node
    facts: Facts

    @property
    def op_type(self) -> str:
        """The operator's name."""
        return self.node.op_type

    @property
    def opset(self) -> int:
        """Version of the operator's domain that the model imports."""
        return self.facts.opsets.get(self.node.domain, 1)

    def with_types(self, types: Mapping[str, TensorType]) -> "Operation":
        """Returns the operation in calls with other types of its tensors, by name."""
        own = {(self.node.scope.path, name): operand(name, kind) for name, kind in types.items()}
        return Operation(self.node, replace(self.facts, _operands=own))

    @property
    def signature(self) -> Signature | None:
        """Equal for nodes that have one work and one traffic, if no values tell them apart.

        None where it is not worth the time, and for the user's own operators.
        """
        node, types, proto = self.node, self.facts.types, self.node.proto
        attributes = proto.attribute
        large = attributes and proto.ByteSize() > _LARGE
        if large or (node.domain, node.op_type) in self.facts.own_rules:
            return None
        reads = node.inputs
        kinds = [id(types.of(name, node.scope)) if name else 0 for name in reads + node.outputs]
        same = () if len(set(reads)) == len(reads) else tuple(map(reads.index, reads))
        settings = tuple([each.SerializeToString() for each in attributes]) if attributes else ()
        return node.op_type, node.domain, len(reads), *kinds, same, settings

    def has(self, index: int) -> bool:
        """Returns whether the optional input at `index` is present."""
        names = self.node.inputs
        return index < len(names) and bool(names[index])

    def input(self, index: int) -> Operand:
        """Returns the input at `index`. Raises UnknownWorkError if it is left out."""
        if not self.has(index):
            raise UnknownWorkError(f"it has no input {index}")
        return self.facts.operand(self.node.inputs[index], self.node.scope)

    def output(self, index: int = 0) -> Operand:
        """Returns the output at `index`. Raises UnknownWorkError if it is left out."""
        names = self.node.outputs
        if index >= len(names) or not names[index]:
            raise UnknownWorkError(f"it has no output {index}")
        return self.facts.operand(names[index], self.node.scope)

    def inputs(self) -> list[Operand]:
        """Returns every tensor it reads, each once."""
        scope, operand = self.node.scope, self.facts.operand
        return [operand(name, scope) for name in dict.fromkeys(self.node.inputs) if name]

    def outputs(self) -> list[Operand]:
        """Returns every tensor it writes."""
        scope, operand = self.node.scope, self.facts.operand
        return [operand(name, scope) for name in self.node.outputs if name]

    def constant(self, index: int) -> np.ndarray | None:
        """Returns the values of the input at `index` if the model stores them, else None."""
        if not self.has(index):
            return None
        return self.facts.value(self.node.inputs[index], self.node.scope)

    def integer(self, name: str, default: int) -> int:
        """Returns an integer attribute."""
        attribute = self._attribute(name)
        return default if attribute is _ABSENT else attribute.i

    def number(self, name: str, default: float) -> float:
        """Returns a float attribute."""
        attribute = self._attribute(name)
        return default if attribute is _ABSENT else attribute.f

    def text(self, name: str, default: str) -> str:
        """Returns a string attribute."""
        attribute = self._attribute(name)
        return default if attribute is _ABSENT else attribute.s.decode(errors="replace")

    def integers(self, name: str) -> tuple[int, ...]:
        """Returns a list of integers; empty where the attribute is left out."""
        return tuple(self._attribute(name).ints)

    def array(self, name: str) -> Array:
        """Returns a list of integers, however long."""
        values = self._attribute(name).ints
        return np.fromiter(values, np.int64, len(values))

    def is_text(self, name: str, text: str) -> Array:
        """Returns which texts of a list are `text`."""
        strings, wanted = self._attribute(name).strings, text.encode()
        return np.fromiter((each == wanted for each in strings), np.bool_, len(strings))

    def numbers(self, name: str) -> tuple[float, ...]:
        """Returns a list of floats; empty where the attribute is left out."""
        return tuple(self._attribute(name).floats)

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns a list of strings; empty where the attribute is left out."""
        return tuple(text.decode(errors="replace") for text in self._attribute(name).strings)

    def _attribute(self, name: str) -> onnx.AttributeProto:
        return next((a for a in self.node.proto.attribute if a.name == name), _ABSENT)


def facts_of(model: Model, types: TensorTypes) -> Facts:
    """Returns the types and constants of `model` for the rules."""
    constants = {
        (node.scope.path, node.outputs[0]): node.proto
        for node in model.nodes
        if node.op_type == "Constant" and not node.domain and node.outputs
    }
    return Facts(types, model.opsets, constants, model.operators.rules)


Traffic = Callable[[Operation], tuple[Bytes, Bytes]]
"""Returns bytes read and bytes written by one execution; None is unknown."""

Work = Callable[[Operation], Count]
"""Returns the work of one execution. Raises UnknownWorkError with the reason if it is unknown."""


@dataclass(frozen=True, slots=True)
class Rule:
    """The counting rule of an operator.

    `settings` are inputs that are never parameters: shapes, axes, bounds, scales of a number
    format, running statistics. `packed` returns the number of weights of an input that packs
    several in one element. `learned` are attributes whose numbers, float32, are parameters.
    """

    work: Work
    traffic: Traffic
    settings: frozenset[int]
    packed: Mapping[int, Callable[[Operation], int]]
    learned: tuple[str, ...] = ()


def everything(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads its inputs, writes its outputs."""
    return total(op.inputs()), total(op.outputs())


def nothing(op: Operation) -> tuple[Bytes, Bytes]:
    """Moves nothing: a view, or control flow whose body counts separately."""
    return 0, 0


def only_writes(op: Operation) -> tuple[Bytes, Bytes]:
    """Writes its output and reads no data."""
    return 0, total(op.outputs())


def selects(op: Operation) -> tuple[Bytes, Bytes]:
    """Reads the selected part of its first input, and the other inputs."""
    written = total(op.outputs())
    selectors = total(operand for operand in op.inputs() if operand.name != op.node.inputs[0])
    return known_sum((written, selectors)), written


def total(operands: Iterable[Operand]) -> Bytes:
    """Returns the bytes of all operands, or None if one is unknown."""
    return known_sum([operand.nbytes for operand in operands])


def known_sum(parts: Iterable[int | None]) -> int | None:
    """Returns the sum, or None if a part is unknown or the sum has more than 64 bits."""
    total = 0
    for part in parts:
        if part is None:
            return None
        total += part
    return total if total <= LARGEST else None


_RULES: dict[tuple[str, str], Rule] = {}


def counts(
    *op_types: str,
    domain: str | tuple[str, ...] = "",
    moves: Traffic = everything,
    settings: Collection[int] = (),
    packed: Mapping[int, Callable[[Operation], int]] | None = None,
    learned: tuple[str, ...] = (),
) -> Callable[[Work], Work]:
    """Registers a function as the rule of these operators, for every version of them.

    An operator may be in several domains. Raises ValueError if it already has a rule.
    """

    def register(work: Work) -> Work:
        rule = Rule(work, moves, frozenset(settings), packed or {}, learned)
        for key in product((domain,) if isinstance(domain, str) else domain, op_types):
            if key in _RULES:
                raise ValueError(f"{key[0] or 'ai.onnx'}.{key[1]} has two counting rules")
            _RULES[key] = rule
        return work

    return register


def per_output(count: Count) -> Work:
    """Returns the rule of `count` operations for each element of the first output."""
    return lambda op: count * op.output().size


def per_input(count: Count) -> Work:
    """Returns the rule of `count` operations for each element of the first input."""
    return lambda op: count * op.input(0).size


def no_work(op: Operation) -> Count:
    """The rule of an operator that only moves, views or describes data."""
    return NOTHING


def find_rule(domain: str, op_type: str) -> Rule | None:
    """Returns the rule of an operator, or None if there is none."""
    return _loaded().get((domain, op_type))


def rule_of(op: Operation) -> Rule | None:
    """Returns the rule of a node: the user's own, else the one of its operator; None without.

    What the user's function raises, or returns in place of a Count, is a reason.
    """
    own = op.facts.own_rules.get((op.node.domain, op.op_type))
    if own is None:
        return find_rule(op.node.domain, op.op_type)

    def work(op: Operation) -> Count:
        try:
            count = own(op)
        except UnknownWorkError:
            raise
        except Exception as error:  # whatever the user's code raises
            raise UnknownWorkError(f"its rule raised {type(error).__name__}: {error}") from error
        if not isinstance(count, Count):
            raise UnknownWorkError(f"its rule returned a {type(count).__name__}, not a Count")
        return count

    return Rule(work, everything, frozenset(), {})


def operators() -> tuple[tuple[str, str], ...]:
    """Returns the domain and name of every operator that has a rule."""
    return tuple(sorted(_loaded()))


@cache
def _loaded() -> dict[tuple[str, str], Rule]:
    rules = importlib.import_module("tracer.analyzers.cost.rules")
    for module in pkgutil.iter_modules(rules.__path__):
        importlib.import_module(f"{rules.__name__}.{module.name}")
    return _RULES
