"""Shrinks a case while its fault stays: nodes, outputs, attributes, sizes, types, values, names."""

import itertools
import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from copy import deepcopy
from dataclasses import dataclass, field, replace
from typing import Any, TypeVar

import numpy as np
import onnx

from tracer.containment.activity import Progress
from tracer.errors import TracerError
from tracer.extraction.cutting import Case, Cutter, values_in_bodies
from tracer.extraction.faults import Fault, Finding
from tracer.graph.model import Model, Node, bodies, node_protos
from tracer.support.types import Array

_Item = TypeVar("_Item")

_FEW = 30
"""Nodes up to which sizes are changed tensor by tensor, and elements one by one."""
_SHAPE = 16
"""Elements of an integer tensor up to which it may hold sizes."""
_STEPS = sorted({1, 3, *(2**k for k in range(1, 31)), *(3 * 2**k for k in range(1, 30))})
"""Sizes that are tried instead of larger ones: 1, 2, 3, 4, 6, 8, 12, …"""
_SMALL = 1 << 12
"""Elements up to which those that matter are looked for."""


def minimize(items: Sequence[_Item], holds: Callable[[Sequence[_Item]], bool]) -> list[_Item]:
    """Returns a part of `items`, in their order, for which `holds`; without any one it does not.

    `holds` is true of all items. This is ddmin (Zeller and Hildebrandt, Simplifying and Isolating
    Failure-Inducing Input, 2002): halves, then what is left without a half, a quarter, and so on.
    """
    tried = dict[tuple[int, ...], bool]()
    places, parts = list(range(len(items))), 2

    def passes(chosen: list[int]) -> bool:
        key = tuple(chosen)
        if key not in tried:
            tried[key] = holds([items[place] for place in chosen])
        return tried[key]

    while len(places) > 1:
        cuts = [round(i * len(places) / parts) for i in range(parts + 1)]
        chunks = [places[a:b] for a, b in itertools.pairwise(cuts)]
        rests = [[p for p in places if p not in set(chunk)] for chunk in chunks]
        kept = next((chunk for chunk in chunks if passes(chunk)), None)
        if kept is not None:
            places, parts = kept, 2
            continue
        kept = next((rest for rest in rests if passes(rest)), None) if parts > 2 else None
        if kept is not None:
            places, parts = kept, max(parts - 1, 2)
        elif parts < len(places):
            parts = min(2 * parts, len(places))
        else:
            break
    left = [items[place] for place in places]
    return [] if len(left) == 1 and passes([]) else left


@dataclass
class Reduction:
    """Holds the smallest case so far, and its finding; `tries` counts the candidates.

    After `seconds` no candidate is tried any more, and `is_complete` is False.
    """

    fault: Fault
    case: Case
    first: Finding
    finding: Finding
    seconds: float
    progress: Progress
    tries: int = 0
    is_complete: bool = True
    began: float = field(default_factory=time.monotonic)

    def accepts(self, case: Case) -> bool:
        """Returns whether a case has the fault, which then is the smallest so far."""
        if time.monotonic() - self.began > self.seconds:
            self.is_complete = False
        if not self.is_complete:
            return False
        self.tries += 1
        self.progress(self.tries, 0, "shrinking the model")
        finding = self.fault.judge(case, self.first)
        if finding is None:
            return False
        self.case, self.finding = case, finding
        return True

    def shrink(self, cutter: Cutter, nodes: Sequence[Node]) -> None:
        """Shrinks the case, which has these nodes; they read the values of the whole model."""
        self._shrink_nodes(cutter, nodes)
        while any(self._shrink_nodes(body, body.nodes) for body in _bodies_alone(self.case)):
            pass
        values = (smaller_sizes, fewer_dimensions, usual_types, simpler_values)
        for change in (fewer_outputs, fewer_attributes, *values, *values, short_names):
            self._apply(change)

    def _shrink_nodes(self, cutter: Cutter, nodes: Sequence[Node]) -> bool:
        """Takes as few of the nodes as have the fault; returns whether all of them have it."""
        if not self.accepts(cutter.cut_out(nodes)):
            return False
        minimize(nodes, lambda part: bool(part) and self.accepts(cutter.cut_out(part)))
        return True

    def _apply(self, change: Callable[[Case], Iterator[Case]]) -> None:
        """Takes the first case that is accepted, and tries those of that case, until there is none.

        No case is tried twice.
        """
        done = set[int]()

        def is_new(case: Case) -> bool:
            arrays = [np.asarray(value) for value in case.arrays.values()]
            content = [(value.shape, value.tobytes()) for value in arrays]
            key = hash((case.proto.SerializeToString(deterministic=True), *content))
            before = len(done)
            done.add(key)
            return len(done) > before

        while any(is_new(case) and self.accepts(case) for case in change(self.case)):
            pass


def _copied(case: Case) -> tuple[Case, onnx.GraphProto]:
    proto = deepcopy(case.proto)
    return replace(case, proto=proto), proto.graph


def _bodies_alone(case: Case) -> Iterator[Cutter]:
    """Yields what cuts nodes out of each body of a case, on the values of its first run."""
    proto = case.model()
    model = Model.of(proto)
    if len(model.scopes) > 1:
        try:
            values = values_in_bodies(model, case.feeds)
        except TracerError:  # what the interpreter does not run stays whole
            return
        for scope in model.scopes[1:]:
            cutter = Cutter(model, scope, values)
            if all(
                values.get(name) is not None for n in cutter.nodes for name in n.outputs if name
            ):
                yield cutter


def fewer_outputs(case: Case) -> Iterator[Case]:
    """Yields the case with one of several outputs alone."""
    outputs = case.proto.graph.output
    for output in outputs if len(outputs) > 1 else ():
        copy, graph = _copied(case)
        del graph.output[:]
        graph.output.append(output)
        yield copy


def fewer_attributes(case: Case) -> Iterator[Case]:
    """Yields the case without each attribute of each node."""
    for place, node in enumerate(case.proto.graph.node):
        for index, attribute in enumerate(node.attribute):
            if not (attribute.HasField("g") or attribute.graphs):
                copy, graph = _copied(case)
                del graph.node[place].attribute[index]
                yield copy


def smaller_sizes(case: Case) -> Iterator[Case]:
    """Yields the case with each size smaller: in all tensors, then in single ones.

    Tensors of integers that hold the size, as of a Reshape, may follow.
    """
    arrays = {n: v for n, v in case.arrays.items() if isinstance(v, np.ndarray)}
    sizes = {size for value in arrays.values() for size in value.shape if size > 1}
    places = [(name, axis) for name, value in arrays.items() for axis in range(value.ndim)]
    for size in sorted(sizes, reverse=True):
        alike = [(name, axis) for name, axis in places if arrays[name].shape[axis] == size]
        groups = [alike]  # the others are ways out
        if len(case.proto.graph.node) <= _FEW and len(alike) > 1:
            groups += [[each] for each in alike]
            groups += [[p for p in alike if p != each] for each in alike] if len(alike) > 2 else []
        for chosen in groups:
            smaller = [step for step in _STEPS if step < size - 1] + [size - 1]
            for new in smaller if chosen is alike else sorted({1, size // 2}):
                for follows in (False, True):
                    yield _resized(case, arrays, chosen, size, new, follows)


def _resized(
    case: Case, arrays: Mapping[str, Array], chosen: Sequence[tuple[str, int]], size: int,
    new: int, follows: bool,
) -> Case:  # fmt: skip
    resized = dict(case.arrays)
    for name, axis in chosen:
        resized[name] = resized[name].take(range(new), axis)
    for name, value in arrays.items() if follows else ():
        if value.dtype.kind == "i" and value.size <= _SHAPE:
            values = np.where(resized[name] == size, new, resized[name])
            resized[name] = values.astype(value.dtype)
    return case.with_arrays(resized, {})


def fewer_dimensions(case: Case) -> Iterator[Case]:
    """Yields the case without an axis of size 1: in all tensors of as many axes, then in one."""
    arrays = {n: v for n, v in case.arrays.items() if isinstance(v, np.ndarray)}
    places = [(v.ndim, axis) for v in arrays.values() for axis in range(v.ndim)]
    for rank, axis in sorted({*places}, reverse=True):
        alike = [n for n, v in arrays.items() if v.ndim == rank and v.shape[axis] == 1]
        for chosen in _all_or_one(alike):
            yield _with_arrays(case, {name: arrays[name].squeeze(axis) for name in chosen})


def usual_types(case: Case) -> Iterator[Case]:
    """Yields the case with float32 for other floats, and int32 for other integers."""
    arrays = {n: v for n, v in case.arrays.items() if isinstance(v, np.ndarray)}
    for kind, usual in (("f", np.float32), ("iu", np.int32)):
        others = [n for n, v in arrays.items() if v.dtype.kind in kind and v.dtype != usual]
        for chosen in _all_or_one(others):
            yield _with_arrays(case, {name: arrays[name].astype(usual) for name in chosen})


def _all_or_one(names: Sequence[str]) -> Iterator[Sequence[str]]:
    """Yields all of some names, then each alone."""
    if names:
        yield names
    if len(names) > 1:
        yield from ([name] for name in names)


def _with_arrays(case: Case, changed: Mapping[str, Array]) -> Case:
    """Returns the case with some other arrays, which have no formulas."""
    formulas = {name: text for name, text in case.formulas.items() if name not in changed}
    return case.with_arrays({**case.arrays, **changed}, formulas)


def simpler_values(case: Case) -> Iterator[Case]:
    """Yields the case with each array as a formula, or with fewer elements that are not 0."""
    for name, value in case.arrays.items():
        if not isinstance(value, np.ndarray) or value.dtype.kind not in "fiub":
            continue
        if name in case.formulas:
            continue

        def with_value(array: Array, formula: str | None, of: str = name) -> Case:
            arrays = {**case.arrays, of: array}
            formulas = {**case.formulas, **({of: formula} if formula else {})}
            return case.with_arrays(arrays, formulas)

        is_positive = (value > 0).all()  # as scales and divisors are
        for array, text in _formulas(value):
            if not is_positive or (array > 0).all():
                yield with_value(array, text)
        if value.dtype.kind == "f" and not is_positive:
            yield from (with_value(np.round(value, digits), None) for digits in (0, 1, 2))
        if value.size <= _SMALL and not is_positive:
            flat = np.flatnonzero(value.reshape(-1))
            for parts in (2, 4, 8, 16) if len(flat) > 1 else ():
                for chunk in np.array_split(flat, min(parts, len(flat))):
                    fewer = value.copy()
                    fewer.reshape(-1)[chunk] = 0
                    yield with_value(fewer, None)


def _formulas(value: Array) -> Iterator[tuple[Array, str]]:
    """Yields simple arrays of the same type and shape, and the Python expressions of them."""
    shape, dtype = value.shape, f"np.{value.dtype.name}"
    dtype = "bool" if value.dtype.kind == "b" else dtype
    texts = [f"np.zeros({shape}, {dtype})", f"np.ones({shape}, {dtype})"]
    if value.dtype.kind in "fi":
        texts.append(f"np.full({shape}, -1, {dtype})")
    if value.size > 1:
        texts.append(f"(np.arange({value.size}) % 7).reshape({shape}).astype({dtype})")
        if value.dtype.kind == "f":
            texts.append(f"np.random.default_rng(0).standard_normal({shape}).astype({dtype})")
        elif value.dtype.kind in "iu":
            ends = int(value.min()), min(int(value.max()), 2**63 - 2) + 1
            texts.append(f"np.random.default_rng(0).integers(*{ends}, {shape}, {dtype})")
    if value.size and (value == value.flat[0]).all():
        number = repr(value.flat[0].item())
        number = number.replace("nan", "np.nan").replace("inf", "np.inf")
        texts.append(f"np.full({shape}, {number}, {dtype})")
    for text in texts:
        yield eval(text, {"np": np}), text  # noqa: S307 - ours


def short_names(case: Case) -> Iterator[Case]:
    """Yields the case with short names, and without names of nodes and documentation."""
    copy, graph = _copied(case)
    new = {name: f"x{index}" for index, name in enumerate(case.feeds)}
    new |= {name: f"w{index}" for index, name in enumerate(case.weights)}
    made = [name for node in node_protos(graph) for name in node.output if name]
    inner = [body for node in node_protos(graph) for _, body in bodies(node)]
    made += [each.name for body in inner for each in body.input]
    made += [each.name for body in inner for each in body.initializer]
    for name in made:
        new.setdefault(name, f"t{len(new)}")
    new |= {value.name: f"y{index}" for index, value in enumerate(graph.output)}
    _rename(graph, new)
    renamed: dict[str, Any] = {
        each: {new[name]: value for name, value in getattr(case, each).items() if name in new}
        for each in ("weights", "feeds", "kinds", "formulas")
    }
    yield replace(copy, **renamed)


def _rename(graph: onnx.GraphProto, new: Mapping[str, str]) -> None:
    """Renames the tensors of a graph and of its bodies, in place."""
    graph.name = re.sub(r"\W", "_", graph.name) or "g"
    del graph.value_info[:]
    values: Any = (*graph.input, *graph.output, *graph.initializer)
    for value in values:
        value.name = new.get(value.name, value.name)
    for node in graph.node:
        node.ClearField("name")
        node.ClearField("doc_string")
        del node.metadata_props[:]
        names: Any = node.input, node.output
        for each in names:
            each[:] = [new.get(name, name) for name in each]
        for _, body in bodies(node):
            _rename(body, new)
