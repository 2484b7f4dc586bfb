"""Count MACs, operations, parameters and bytes of each node, from shapes alone.

`analyzers.cost.rules` has one file for each operator family; docs/counting.md has the conventions.
In short: a convolution counts its full window, padding included. `flops = 2 × MACs + other
arithmetic`. A view costs nothing. Unknown work is missing and listed, never zero.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeAlias

import pandas as pd

from tracer.accumulators.engine.tensor_scales import TensorScales
from tracer.analyzers.cost import count as counting
from tracer.analyzers.cost import parameters
from tracer.analyzers.cost.parameters import QuantizedTypes, is_integer, width
from tracer.analyzers.cost.typed_model import TypedModel, brief_list, executions_per_run
from tracer.graph import operators
from tracer.graph.model import Node

if TYPE_CHECKING:
    from tracer.accumulators.spec.policy import Rule

WORK = ("macs", "adds", "muls", "flops")
COLUMNS = (*WORK, "params", "param_bytes", "bytes_read", "bytes_written")
"""Whole numbers; `intensity` follows them."""
_DYNAMIC_BITS = 8
"""Bits that an operator rounds float activations to, if it multiplies them as integers."""

_TYPES = {
    "fp32": "float32", "fp16": "float16", "bf16": "bfloat16",
    "fp8-e4m3": "float8_e4m3fn", "fp8-e5m2": "float8_e5m2",
    "fp8-e4m3fnuz": "float8_e4m3fnuz", "fp8-e5m2fnuz": "float8_e5m2fnuz",
}  # fmt: skip
"""Formats of operands and accumulators that are types of ONNX."""


@dataclass(frozen=True)
class Cost:
    """The cost of every node of a model in one run.

    `table` is indexed by node key in the order of the model, with the columns `COLUMNS` (Int64)
    and `intensity` (Float64, flop per byte); a missing value is unknown. `parameters` are those of
    the model and their bytes, a shared weight once. `unknown` lists nodes of unknown work as
    `key: reason`, `misfit` is the first whose inputs no run takes, `causes` sums up why, and
    `notes` are the assumptions. `repeats` are the executions of each node in one run, by key.
    `has_open_shapes` tells whether the shape of a tensor is among what is unknown: a run has it.
    """

    table: pd.DataFrame = field(repr=False)
    parameters: tuple[int | None, int | None]
    unknown: tuple[str, ...]
    misfit: str | None
    causes: tuple[str, ...]
    notes: tuple[str, ...]
    repeats: Mapping[str, float] = field(repr=False)
    has_open_shapes: bool

    @property
    def idle(self) -> tuple[str, ...]:
        """The nodes that do not run: another branch is taken, or a loop has no trips."""
        return tuple(key for key, times in self.repeats.items() if not times)

    @property
    def every_note(self) -> tuple[str, ...]:
        """The assumptions, and why nodes could not be counted."""
        unknown = (f"work unknown, excluded from all totals: {cause}" for cause in self.causes)
        return (*self.notes, *unknown)


@dataclass(frozen=True, slots=True, eq=False)
class _Row:
    """One execution of a node; None is unknown. `open` is the tensor whose shape it needs."""

    count: counting.Count | None
    reason: str
    read: counting.Bytes
    written: counting.Bytes
    open: str | None = None
    is_misfit: bool = False


_Calls: TypeAlias = Sequence[tuple[float, _Row]]
"""Rows, each with how many executions it stands for."""


def cost(
    typed: TypedModel,
    calls: Mapping[str, float] | None = None,
    convention: str = "plain",
) -> Cost:
    """Counts every node of a model.

    `calls` are the observed executions of nodes per run, by key. Without them a Scan body counts by
    the length of its sequence and a Loop body by its constant maximum; a body of unknown count
    counts once, with a note. Raises UsageError for an unknown `convention`.
    """
    adds_of = counting.find_convention(convention)
    repeats, notes = executions_per_run(typed.model, typed.facts, calls or {})
    rows = _rows_of_nodes(typed, repeats)
    weights = parameters.owned(typed.operations, typed.sources)
    notes += parameters.of_idle(weights, {key for key, times in repeats.items() if not times})
    work: dict[_Calls, tuple[int | None, ...]] = {
        calls: _work(calls, adds_of) for calls in set(rows.values())
    }
    # rows of the table that are equal: most nodes of a large model repeat some others
    places: dict[tuple[int | None, ...], int] = {}
    place_of = [
        places.setdefault(_values(work[calls], weights[key]), len(places))
        for key, calls in rows.items()
    ]
    columns = {name: [row[i] for row in places] for i, name in enumerate(COLUMNS)}
    reasons = {
        key: (row.reason, row.open)
        for key, calls in rows.items()
        for _, row in calls
        if row.count is None
    }
    unknown = tuple(f"{key}: {reason}" for key, (reason, _) in reasons.items())
    unfit = (f"{k}: {row.reason}" for k, calls in rows.items() for _, row in calls if row.is_misfit)
    every = parameters.united(weights.values())
    whole = parameters.size(every), parameters.nbytes(every)
    data = {
        name: pd.array(values, dtype="Int64").take(place_of) for name, values in columns.items()
    }
    table = pd.DataFrame(data, index=pd.Index(tuple(rows), name="node", dtype="object"))
    moved = table["bytes_read"] + table["bytes_written"]
    table["intensity"] = table["flops"] / moved.where(moved > 0)  # below 0: more than 64 bits
    has_open_shapes = any(name is not None for _, name in reasons.values())
    causes = _causes(typed, reasons)
    return Cost(table, whole, unknown, next(unfit, None), causes, notes, repeats, has_open_shapes)


def _rows_of_nodes(typed: TypedModel, repeats: Mapping[str, float]) -> dict[str, _Calls]:
    """Returns the executions of every node, by key; of nodes with one signature once."""
    rows: dict[str, _Calls] = {}
    alike: dict[tuple[float, counting.Signature], _Calls] = {}
    looked_up, varying = typed.facts.looked_up, typed.types.varying
    for op in typed.operations:
        key, signature = op.node.key, op.signature
        times = repeats[key]
        calls = None if signature is None or key in varying else alike.get((times, signature))
        if calls is None:
            before = len(looked_up)
            calls = _rows(op, times)
            is_shared = len(looked_up) == before and all(row.count is not None for _, row in calls)
            if is_shared and signature is not None and key not in varying:
                alike[times, signature] = calls
        rows[key] = calls
    return rows


def _rows(op: counting.Operation, repeats: float) -> _Calls:
    """Returns the executions of a node: as many as `repeats`, in parts that have the same types."""
    varying = op.facts.types.varying.get(op.node.key)
    if not varying or not repeats:
        return ((repeats, _row(op, repeats)),)
    share = repeats / sum(count for count, _ in varying)
    return tuple(
        (count * share, _row(op.with_types(types), count * share)) for count, types in varying
    )


def _row(op: counting.Operation, repeats: float) -> _Row:
    node = op.node
    if not repeats:
        return _Row(counting.NOTHING, "", 0, 0)
    rule = counting.rule_of(op)
    if rule is None:
        return _Row(None, f"there is no counting rule for {node.qualified_type}", None, None)
    read: counting.Bytes = None
    written: counting.Bytes = None
    try:
        read, written = rule.traffic(op)
        count = rule.work(op).checked()
    except counting.UnknownShapeError as error:
        return _Row(None, f"{node.op_type}: {error}", read, written, error.tensor)
    except counting.UnknownWorkError as error:
        return _Row(None, f"{node.op_type}: {error}", read, written)
    except MemoryError:
        raise
    except Exception as error:  # a rank, an attribute or a stored tensor that no operator allows
        shapes = ", ".join(str(operand.known_shape) for operand in op.inputs())
        reason = (
            f"{node.op_type}: inputs of shapes {shapes} do not fit the operator or its attributes"
        )
        is_misfit = isinstance(error, counting.MisfitError)
        return _Row(None, reason, read, written, is_misfit=is_misfit)
    if count.flops * repeats > counting.LARGEST:
        return _Row(None, f"{node.op_type}: the count does not fit in 64 bits", read, written)
    return _Row(count, "", read, written)


def _values(work: tuple[int | None, ...], weights: parameters.Weights) -> tuple[int | None, ...]:
    """Returns the columns of a node of this work; the weights count once."""
    sizes = (parameters.size(weights), parameters.nbytes(weights)) if weights else (0, 0)
    return (*work[: len(WORK)], *sizes, *work[len(WORK) :])


def _work(calls: _Calls, adds_of: counting.Convention) -> tuple[int | None, ...]:
    """Sums the work and the bytes of all executions."""
    parts: list[tuple[int | None, ...]] = []
    for repeats, row in calls:
        count = row.count
        work: tuple[int | None, ...] = (None,) * len(WORK)
        if count is not None:
            work = (count.macs, adds_of(count), count.macs + count.muls, count.flops)
        values = (*work, row.read, row.written)
        parts.append(values if repeats == 1 else tuple(_times(value, repeats) for value in values))
    return tuple([counting.known_sum(column) for column in zip(*parts, strict=True)])


def _times(value: int | None, repeats: float) -> int | None:
    """Multiplies by the calls of a run, whose average may be a fraction; rounds the result."""
    if value is None:
        return None
    whole = isinstance(repeats, int) or repeats.is_integer()
    product = value * int(repeats) if whole else round(value * repeats)
    return product if product <= counting.LARGEST else None


def _causes(typed: TypedModel, reasons: Mapping[str, tuple[str, str | None]]) -> tuple[str, ...]:
    """Returns a sentence for each cause of nodes of unknown work, not for each node.

    One shape that depends on data leaves the shapes of all tensors behind it unknown. `reasons` are
    by node key: as text, and the tensor whose shape is needed, if it is this.
    """
    if not reasons:
        return ()
    origins = _origins(typed)
    behind: dict[str, list[str]] = {}
    others: dict[str, list[str]] = {}
    for node in typed.model.nodes:
        reason, name = reasons.get(node.key, (None, None))
        if name is not None:
            behind.setdefault(_origin(typed, origins, name, node), []).append(node.key)
        elif reason is not None:
            others.setdefault(reason, []).append(node.key)
    return (
        *(
            f"{keys[0] if len(keys) == 1 else f'{len(keys):,} nodes'} behind {origin}"
            for origin, keys in behind.items()
        ),
        *(f"{brief_list(keys)}: {reason}" for reason, keys in others.items()),
    )


def _origins(typed: TypedModel) -> dict[str, str]:
    """Returns what first left the shape of an output open, by the key of the node."""
    origins: dict[str, str] = {}
    for node in typed.model.nodes:
        outputs = [typed.facts.operand(name, node.scope) for name in node.outputs if name]
        left_open = next((each for each in outputs if each.known_shape is None), None)
        if left_open is None:
            continue
        inputs = (typed.facts.operand(name, node.scope) for name in node.inputs if name)
        before = next((each.name for each in inputs if each.known_shape is None), None)
        if before is not None:
            origins[node.key] = _origin(typed, origins, before, node)
        else:
            is_tensor = left_open.dtype is not None and not node.domain
            why = "depends on data" if is_tensor else "onnx cannot infer"
            origins[node.key] = f"'{node.key}' ({node.qualified_type}), whose shape {why}"
    return origins


def _origin(typed: TypedModel, origins: Mapping[str, str], name: str, node: Node) -> str:
    """Returns what left the shape of the tensor `name` open, as `node` knows it."""
    path, name = typed.flow.address(name, node.scope)
    maker = typed.flow.makers.get((path, name))
    fed = f"'{name}', {'an input of a body' if path else 'an input'}, whose shape is unknown"
    return fed if maker is None else origins.get(maker.key, fed)


def bit_operations(typed: TypedModel, macs: pd.Series) -> pd.DataFrame:
    """Returns the column `bops` (Int64) of the nodes of known MACs, by node key.

    Factors of a quantised model have the width before DequantizeLinear, others that of their type.
    The value is missing where a type is unknown, or the count needs more than 64 bits.
    """
    numbers = macs.dropna().astype("int64")
    known: dict[str, int] = dict(zip(numbers.index, numbers.tolist(), strict=True))
    bops = {key: 0 for key, count in known.items() if not count}
    if len(bops) < len(known):
        for key, factors in operands(typed, of={key for key in known if key not in bops}).items():
            total = known[key] * factors.activation_bits * factors.weight_bits
            if 0 < total <= counting.LARGEST:
                bops[key] = total
    return pd.DataFrame({"bops": pd.Series(bops, dtype="Int64")})


@dataclass(frozen=True, slots=True)
class Operands:
    """Bits of both factors of a node; `float_type`, as `float16`, if they are floats.

    `adder` is the type of the float accumulator that adds products; None adds products of integers
    as integers, and products of floats in their type.
    """

    activation_bits: int
    weight_bits: int
    float_type: str | None = None
    adder: str | None = None


def operands(
    typed: TypedModel,
    rules: Mapping[str, Rule] | None = None,
    of: Collection[str] | None = None,
) -> dict[str, Operands]:
    """Returns the operands of every node by key, without nodes whose operands have no such type.

    `of` are the keys of the nodes that it is asked about [default: all]. In a quantised model
    operands have the type before DequantizeLinear (`QuantizedTypes`). A node multiplies floats if
    either factor is a float. `rules` of narrow nodes have the formats of float operands.
    """
    reader = _Reader(typed.quantized_types, TensorScales(typed.model) if rules else None)
    nodes = [node for node in typed.model.nodes if of is None or node.key in of]
    found = {node.key: reader.operands(node, (rules or {}).get(node.key)) for node in nodes}
    return {key: each for key, each in found.items() if each is not None}


@dataclass(frozen=True, slots=True)
class _Reader:
    types: QuantizedTypes
    scales: TensorScales | None

    def operands(self, node: Node, rule: Rule | None) -> Operands | None:
        """Returns the operands of one node; None where a type is unknown or not a number."""
        product = (
            operators.PRODUCTS.get(node.op_type)
            if node.domain in ("", operators.MICROSOFT)
            else None
        )
        weights = product.weights if product is not None else None
        # both factors of other operators have the type of the first input
        indices = (0, 0 if weights is None else weights)
        present = [index for index in indices if node.has_input(index)]
        if not present:
            return None
        factors = [self._factor(node, index, rule) for index in present]
        if _adder(rule) is None and operators.multiplies_packed_integers(node):
            zeros = (*node.inputs, "")[3]
            if not zeros or self.types.declared(zeros, node.scope) == "uint8":
                bits = next((a.i for a in node.proto.attribute if a.name == "bits"), 4)
                factors = [f"int{_DYNAMIC_BITS}", f"uint{bits}"]
        if any(dtype is None for dtype in factors):
            return None
        dtypes = [dtype for dtype in factors if dtype is not None]
        floats = [dtype for dtype in dtypes if not is_integer(dtype)]
        widths = [width(dtype) for dtype in (floats[:1] or dtypes)]
        return Operands(widths[0], widths[-1], floats[0] if floats else None, _adder(rule))

    def _factor(self, node: Node, index: int, rule: Rule | None) -> str | None:
        """Returns the type of the factor at `index`; a fixed-point format as `int8`."""
        name = node.inputs[index]
        own = self.types.declared(name, node.scope)
        if own is None or is_integer(own):
            return self.types.of(name, node.scope)
        if rule is not None and _adder(rule) is not None:
            return own if rule.operands is None else _type_of(rule.operands.format_name)
        if self.scales is not None and rule is not None and rule.format is not None:
            weights = index > 0 and self.scales.constant(name, node.scope)
            return f"int{(rule.format.weights if weights else rule.format.activations).bits}"
        if operators.computes_in_integers(node.op_type):
            return f"int{_DYNAMIC_BITS}"
        return self.types.of(name, node.scope)


def _adder(rule: Rule | None) -> str | None:
    """Returns the type that a float accumulator adds in: that of its format, if it has one."""
    return None if rule is None or rule.adder is None else _type_of(rule.adder)


def _type_of(spelling: str) -> str:
    """Returns the name of ONNX for a format, else its spelling."""
    return _TYPES.get(spelling, spelling)
