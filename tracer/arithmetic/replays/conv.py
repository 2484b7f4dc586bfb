"""Convolutions of floats: Conv, FusedConv, and Conv of blocks of channels (NCHWc)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import product
from typing import Any

import numpy as np
from onnx import helper

from tracer.arithmetic import layouts, orders, replays, sums, trees
from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.rule import NotKnown, Replay, Rule, are_equal, reveal
from tracer.arithmetic.windows import Operands, convolve, slide
from tracer.interpreter.numeric.windows import padded, patches
from tracer.support.types import Array

_FLOAT = np.dtype(np.float32)
_FUSED, _PLAIN = (True, True), (False, True)
_LEAST_RUNS, _LEAST_SEEN = 2, 30
"""Random runs, and results of each place, that tell which order fits there."""
_MOST_TRIES, _MOST_TOLD = 40, 4
"""Orders that are tried for one kernel, and that are told."""
Way = tuple[bool, bool]


class _Conv:
    """Sums over windows: candidates come of the shapes, and if none fits, of probes."""

    def candidates(self, kernel: Kernel) -> Iterator[Rule]:
        if any(dtype != _FLOAT for dtype, _ in kernel.inputs.values()):
            raise NotKnown("convolutions of other types than float32 are not known")
        block = layouts.block_size() if kernel.node.domain == layouts.DOMAIN else 0
        more: dict[str, Any] = {"block": block} if block else {}
        then = ""
        activation = _activation(kernel)
        if activation is not None:
            more["activation"] = reveal(_replay_of(activation), activation).facts
            then = f", then {activation.op_type}"
        bare = kernel.without_attributes("activation", "activation_params")
        rule = _rule_of_sums(bare, block)
        yield Rule(rule.text + then, {**rule.facts, **more})

    def replay(
        self, kernel: Kernel, facts: Mapping[str, Any], inputs: Mapping[str, Array]
    ) -> list[Array]:
        block = facts.get("block", 0)
        out = convolve(facts, _operands(kernel, block, inputs))
        activation = _activation(kernel)
        if activation is not None:
            (out,) = _replay_of(activation).replay(activation, facts["activation"], {"x": out})
        return [layouts.to_blocks(out, block) if block else out]


def _replay_of(kernel: Kernel) -> Replay:
    return replays.replay_of(kernel.node.domain, kernel.op_type)


def _operands(kernel: Kernel, block: int, inputs: Mapping[str, Array]) -> Operands:
    """Returns what the kernel takes in ONNX's layout; with `block` 0 it is in that already."""
    x, w, bias, residual = (*kernel.values(inputs), None, None)[:4]
    assert x is not None and w is not None
    if block:
        w = layouts.weights_from_blocks(w, block)
        x = layouts.from_blocks(x, block) if x.shape[1] >= block else x
        residual = None if residual is None else layouts.from_blocks(residual, block)
    slid = slide(x.shape, w.shape, kernel.attributes)
    return Operands(x, w, bias, residual, slid, kernel.attributes.get("group", 1))


def _likely_orders(given: Operands, block: int) -> Iterator[tuple[str, trees.Program, Way]]:
    """Yields orders that onnxruntime's kernels are known for, the likeliest first.

    Matrices of patches are multiplied in blocks of terms, which are longer where there are few
    positions; one filter alone in blocks of 4, without FMA. Kernels of blocks of channels add the
    channels of a block position by position; 128 channels where a window is one element.
    """
    volume, terms, columns = math.prod(given.slid.kernel), given.terms, given.slid.pixels
    channels = terms // volume
    if block:
        first = 1 if channels < block else 128 if volume == 1 else block
        for size in dict.fromkeys(min(size, channels) for size in (first, block, 128, 1)):
            text = f"in blocks of {size} channel{'s' * (size > 1)}, position by position"
            yield text, _by_channels(channels, volume, size), _FUSED
        return
    if len(given.w) == given.group:
        yield "in blocks of 4, then the blocks", orders.four_by_four(terms), _PLAIN
    likely = width = 128
    while columns < terms and width > max(16, 2 * columns - 1):
        likely, width = likely * 2, width // 2
    for size in dict.fromkeys(min(size, terms) for size in (likely, 128, 256, 512, 1024)):
        text = "one after the other" if size == terms else f"in blocks of {size}, then the blocks"
        yield text, orders.blocks(terms, size), _FUSED


def _by_channels(channels: int, volume: int, size: int) -> trees.Program:
    """Returns the order of blocks of channels, each at one position of the window after another."""
    program: trees.Program = []
    for low in range(0, channels, size):
        part = range(low, min(low + size, channels))
        program += orders.run([c * volume + v for v in range(volume) for c in part])
        program += [trees.JOIN] * (low > 0)
    return program


def _with_extras(program: trees.Program, given: Operands) -> Iterator[tuple[str, trees.Program]]:
    """Yields the order with the places that bias and residual may have, the likeliest first."""
    extras = [("the residual", given.terms + 1)] * (given.residual is not None)
    extras += [("the bias", given.terms)] * (given.bias is not None)
    places = "first", "last", "as the register's start"
    for chosen in product(*([places] * len(extras))):
        if extras and extras[-1][0] == "the bias":  # which is added last by most kernels
            chosen = (*chosen[:-1], {"first": "last", "last": "first"}.get(chosen[-1], chosen[-1]))
        text, whole = "", program
        for (name, term), place in zip(extras, chosen, strict=True):
            text += f", {name} {place}"
            whole = _with_term(whole, term, place)
        yield text, whole


def _with_term(program: trees.Program, term: int, place: str) -> trees.Program:
    if place == "last":
        return [*program, 4 * term + trees.ADD]
    if place == "first":  # the first register, or block, is added to the term
        second = [at for at, step in enumerate(program) if step % 4 == trees.BEGIN][1:]
        end = second[0] if second else len(program)
        return [4 * term + trees.BEGIN, *program[:end], trees.JOIN, *program[end:]]
    return [4 * term + trees.BEGIN, program[0] - trees.BEGIN + trees.ADD, *program[1:]]


def _rule(text: str, program: trees.Program, way: Way, given: Operands) -> Rule:
    order = {"program": program, "fused": way[0], "from_zero": way[1]}
    facts = {"orders": [order], "ranges": [[0, given.places]]}
    return Rule(f"{sums.WAYS[way]}, {text}", facts)


def _rule_of_sums(kernel: Kernel, block: int) -> Rule:
    """Returns the rule that has, for each place in the output, the commonest order that fits.

    Known orders are tried first; where none fits, probes find one. Weights are random: those of a
    model may hide orders, as zeros do. Raises NotKnown if nothing fits.
    """
    samples = list(_samples(kernel, block))
    given = samples[0][0]

    def fits(rule: Rule) -> Any:
        equal = [are_equal(convolve(rule.facts, x), y).reshape(y.shape) for x, y in samples]
        return np.all(np.concatenate(equal).reshape(-1, given.places), axis=0)

    known: list[Rule] = []
    fitting: list[Any] = [np.zeros(given.places, bool)]
    for text, program, way in _likely_orders(given, block):
        place, whole = next(_with_extras(program, given))
        known.append(_rule(text + place, whole, way, given))
        fitting.append(fits(known[-1]))
        if fitting[-1].all():
            return known[-1]
    while not (covered := np.any(fitting, axis=0)).all():
        if len(known) > _MOST_TRIES:
            raise NotKnown("more orders than can be told apart")
        missing = np.flatnonzero(~covered)
        target = int(missing[len(missing) // 2])
        program = _probe(kernel, block, given, target)
        for way, (extras, whole) in product(sums.WAYS, _with_extras(program, given)):
            known.append(_rule(trees.describe(program) + extras, whole, way, given))
            fitting.append(fits(known[-1]))
            if fitting[-1][target]:
                break
        else:
            raise NotKnown(f"no order of additions fits place {target} of the output")
    ranks = np.argsort(-np.sum(fitting[1:], axis=1), kind="stable")
    return _merge(known, ranks[np.argmax(np.array(fitting[1:])[ranks], axis=0)])


def _samples(kernel: Kernel, block: int) -> Iterator[tuple[Operands, Array]]:
    """Yields operands and outputs of random runs, until each place has been seen often."""
    random, seen, turn = np.random.default_rng(1), 0, 0
    stored = {at: kernel.constant(at) for at in range(1, len(kernel.node.input))}
    drawn = {
        at: random.standard_normal(value.shape).astype(np.float32)
        for at, value in stored.items()
        if value is not None
    }
    kernel = kernel.with_constants(drawn)
    while turn < _LEAST_RUNS or seen < _LEAST_SEEN:
        inputs = kernel.draw(random)
        given, output = _operands(kernel, block, inputs), _output(kernel, block, inputs)
        yield given, output
        seen, turn = seen + output.size // given.places, turn + 1


def _merge(rules: Sequence[Rule], choice: Array) -> Rule:
    """Returns the rule that has at each position the order of the rule that `choice` names."""
    ends = [*np.flatnonzero(np.diff(choice)) + 1, len(choice)]
    numbers = [int(choice[end - 1]) for end in ends]
    used = list(dict.fromkeys(numbers))
    ranges = [[used.index(number), int(end)] for number, end in zip(numbers, ends, strict=True)]
    texts = [
        f"{rules[number].text} below place {end}"
        for number, end in list(zip(numbers, ends, strict=True))[:_MOST_TOLD]
    ]
    text = rules[used[0]].text if len(used) == 1 else "; ".join(texts)
    orders = [rules[number].facts["orders"][0] for number in used]
    return Rule(text, {"orders": orders, "ranges": ranges})


def _output(kernel: Kernel, block: int, inputs: Mapping[str, Array]) -> Array:
    out = kernel.run(inputs)[0]
    return layouts.from_blocks(out, block) if block else out


def _probe(kernel: Kernel, block: int, given: Operands, place: int) -> trees.Program:
    """Returns the order of products at a place of the output, which probes find."""
    x = given.x
    numbers = np.arange(1, x[0].size + 1).reshape(1, *x.shape[1:])  # 0 is beyond the input
    windows = patches(padded(numbers, given.slid), given.slid)[0]
    channels = given.w.shape[1]
    filter_, position = (0, place) if given.slid.pixels > 1 else (place, 0)
    read = windows[:channels].reshape(given.terms, -1)[:, position]
    inside = np.flatnonzero(read)
    fixed = {1: np.ones_like(given.w)}
    fixed |= {2: np.zeros_like(given.bias)} if given.bias is not None else {}
    fixed |= {3: np.zeros_like(given.residual)} if given.residual is not None else {}
    stored = {at: value for at, value in fixed.items() if kernel.constant(at) is not None}
    probed = kernel.with_constants(stored)
    feeds = {kernel.node.input[at]: value for at, value in fixed.items() if at not in stored}
    is_blocked = block and x.shape[1] >= block

    def add(terms: Array) -> float:
        values = np.zeros(x.shape, np.float32)
        values[0].reshape(-1)[read[inside] - 1] = terms
        values = layouts.to_blocks(values, block) if is_blocked else values
        out = _output(probed, block, {**feeds, kernel.node.input[0]: values})
        return float(out[0, filter_].flat[position])

    if kernel.constant(0) is not None or len(inside) < 2:
        raise NotKnown("the input cannot be probed")
    return trees.with_terms(trees.find_program(add, len(inside)), inside)


def _activation(kernel: Kernel) -> Kernel | None:
    """Returns the activation at the end of a fused kernel as a kernel of its own."""
    name = kernel.attributes.get("activation")
    if not name:
        return None
    numbers = kernel.attributes.get("activation_params", [])
    stored = dict(zip(("low", "high"), numbers, strict=False)) if name == "Clip" else {}
    attributes = {} if stored else dict(zip(("alpha", "beta"), numbers, strict=False))
    node = helper.make_node(name, ["x", *stored], ["y"], **attributes)
    slid = slide(kernel.shape(0) or (), kernel.shape(1) or (), kernel.attributes)
    shape = (kernel.shape(0) or ())[0], (kernel.shape(1) or ())[0], *slid.out
    constants = {key: np.array(value, np.float32) for key, value in stored.items()}
    return Kernel(node, {"x": (_FLOAT, shape)}, constants, {"": 17}, kernel.threads)


_CONV = _Conv()
REPLAYS = {
    "Conv": _CONV,
    "com.microsoft:FusedConv": _CONV,
    f"{layouts.DOMAIN}:Conv": _CONV,
}
