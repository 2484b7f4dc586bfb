"""The door to compiled code: real arguments of every kernel, each array made to misfit in turn."""

from __future__ import annotations

import ast
from collections.abc import Callable
from itertools import zip_longest
from pathlib import Path

import numpy as np
import pytest

import tracer
from tests.accumulators.dots import emulate, observe
from tests.interpreter.models import single
from tracer.accumulators import chains
from tracer.accumulators.engine import tile_sums
from tracer.accumulators.engine.tile_sums import SumLanes, checked, program
from tracer.accumulators.floats import casting, compiled_sums
from tracer.accumulators.floats.casting import paired
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.block_fma import block_fma
from tracer.accumulators.spec.float_accumulator import float_accumulator, float_format
from tracer.accumulators.spec.orders import Terms, named
from tracer.accumulators.statistics.float_partial_sums import FloatTally
from tracer.accumulators.statistics.partial_sums import Tally
from tracer.interpreter.compiled_code import Entry, Task, UnfitError, loaded
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.kernels import argument_types
from tracer.interpreter.kernels.tiles import ARRAYS
from tracer.interpreter.numeric import windows
from tracer.narrowing import rounding

ROOT = Path(tracer.__file__).parent
RANDOM = np.random.default_rng(0)
COUNTS = np.zeros((3, 9), np.int64)
IMAGES = RANDOM.standard_normal((2, 8, 32, 33)).astype(np.float32)


def floats(*shape):
    return RANDOM.standard_normal(shape).astype(np.float32)


def node(op_type, *inputs, opset=21, **attributes):
    feeds = {f"x{place}": value for place, value in enumerate(inputs)}
    Interpreter(single(op_type, feeds, opset=opset, **attributes)).run(None, feeds)


def sums(order, **more):
    accumulator = Accumulator(12, "saturate", named(order), **more)
    case = (RANDOM.integers(-9, 9, (3, 24)), RANDOM.integers(-9, 9, (24, 40)), None, Terms(8, (3,)),
            accumulator)  # fmt: skip
    seen, got = observe(*case), emulate(*case)
    Tally.empty(3, accumulator).of(seen, got)


def tiles(order):
    """Every store of the tiles of integer sums."""
    terms, accumulator = Terms(8, (3,)), Accumulator(9, "saturate", named(order))
    left, right = RANDOM.integers(-9, 9, (3, 24)), RANDOM.integers(-9, 9, (24, 40))
    matrices = checked(left, right, None, terms)
    plan = program(accumulator.order, terms)
    factors = tile_sums.Factors.of(SumLanes(matrices, plan, accumulator), plan, 32)
    columns = tile_sums.of_matrix(matrices, plan.sequence)
    outs = [np.empty(matrices.shape, np.int64) for _ in range(3)]
    parameters, out = np.ones((3, 8)), np.empty(matrices.shape, np.uint8)
    factors.observe(columns, *outs)
    factors.clip(columns, outs[0], outs[1])
    factors.clip(columns, out, None, parameters)
    for rare in (False, True):
        factors.count(columns, out, parameters, rare)
    factors.tally(columns, out, parameters)


def sequential(spelling, left, right):
    accumulator = float_accumulator(spelling)
    start = np.zeros((len(left), 1))
    indices = np.arange(len(left) * right.shape[1]).reshape(len(left), -1)
    compiled_sums.sequential(left, right, start, accumulator, 0, indices)


def blocks(spelling, left, right):
    start = np.zeros((len(left), right.shape[1]))
    compiled_sums.blocks(left, right, start, block_fma(spelling))


def halves(*shape):
    return floats(*shape).astype(np.float16).astype(np.float32)


def scaled(rows, columns, axis):
    """Numbers of 4 bits in groups of 16, each with a scale."""
    elements = RANDOM.integers(-2, 3, (rows, columns)).astype(np.float32)
    return paired(elements, np.full((rows, columns), 2.0, np.float32))


def rounded():
    """Weights rounded to registers of 8 terms."""
    moments = rounding.gram(RANDOM.integers(0, 9, (90, 40)).astype(float))
    limits = rounding.Limits(0, 8, *np.full((2, 3, 5), 99.0), 127, (0, 8, 16, 24, 32))
    rounding.round_within(RANDOM.normal(0, 9, (3, 40)), rounding.Correlations.of(moments), limits)


SCENES: dict[str, Callable[[], object]] = {
    "rounded columns": rounded,
    "affine": lambda: node("BatchNormalization", IMAGES, *(np.ones((4, 8), np.float32))),
    "relu": lambda: node("Relu", IMAGES),
    "binary": lambda: node("Add", IMAGES, IMAGES[0]),
    "binary, one": lambda: node("Mul", IMAGES, np.ones(1, np.float32)),
    "binary, alike": lambda: node("Sub", floats(9, 9, 999), floats(9, 9, 999)),
    "ratio": lambda: node("Erf", IMAGES),
    "softmax": lambda: node("Softmax", floats(99, 99)),
    "normalize": lambda: node("LayerNormalization", floats(99, 99), floats(99), floats(99)),
    "depthwise": lambda: node("Conv", IMAGES, floats(16, 1, 3, 3), group=8, pads=[1, 1, 1, 1]),
    "max_pool": lambda: node("MaxPool", IMAGES, kernel_shape=[3, 3], strides=[2, 2]),
    "halve": lambda: node("MaxPool", IMAGES, kernel_shape=[2, 2], strides=[2, 2]),
    "tile": lambda: node("MatMul", floats(2, 200, 400), floats(2, 400, 100)),
    "tile, convolution": lambda: node("Conv", IMAGES, floats(12, 4, 3, 3), group=2),
    "quantize": lambda: node("QuantizeLinear", IMAGES, np.float32(0.1), np.uint8(9)),
    "dequantize": lambda: node(
        "DequantizeLinear", (IMAGES * 9).astype(np.int8), np.float32(0.1), np.int8(0)
    ),
    "tables": lambda: (
        chains.looked_up(np.zeros((256, 3), np.int8), np.zeros((5, 3), np.uint8)),
        chains.looked_up(np.zeros((256, 256), np.int8), *np.zeros((2, 5, 3), np.uint8)),
    ),
    "single sums": lambda: sums("sorted", product_bits=7, product_shift=2),
    "sums": lambda: sums("tiles(3:8)"),
    "tiles": lambda: tiles("sequential"),
    "tiles in groups": lambda: tiles("tiles(3)"),
    "errors": lambda: FloatTally.empty("fp16", None).plus(floats(9), *COUNTS, np.zeros(9)),
    "casts": lambda: casting.cast(floats(9), float_format("bf16")),
    "sequential": lambda: sequential("fp16", halves(3, 9), halves(9, 40)),
    "sequential, draws": lambda: sequential("fp16(sr=3)", halves(3, 9), halves(9, 40)),
    "sequential, chunks": lambda: sequential("e6m9(chunk=4)", floats(3, 9), floats(9, 40)),
    "blocks": lambda: blocks("bfma(4,23)", halves(3, 9), halves(9, 40)),
    "blocks, wide": lambda: blocks("bfma(16,25,fp16,split)", halves(3, 40), halves(40, 9)),
}


SHORTER = {("arrange", 1), ("arrange", 3), ("depthwise", 0), ("max_pool", 0), ("max_pool", 1),
           ("a tile", 1), ("measured", 0)}  # fmt: skip
"""Arrays of which a part may be unused, or that have any size."""


def calls_of(scene, monkeypatch):
    """The compiled functions of a scene: name, what calls it, arguments, what is written."""
    seen, enter, words = [], Entry.__call__, Task.words

    def entered(self, *given):
        seen.append((self.function.__name__, self, given, types_of(self)))
        return enter(self, *given)

    def read(self, count, arrays, numbers):
        def again(*others):
            return words(self, count, others, numbers)

        seen.append((self.name, again, tuple(arrays), places(self)))
        return words(self, count, arrays, numbers)

    with monkeypatch.context() as patch:
        patch.setattr(Entry, "__call__", entered)
        patch.setattr(Task, "words", read)
        scene()
    return seen


def types_of(entry):
    """Whether each array among the arguments is written to; None for other arguments."""
    return [written(kind) for kind in entry.signatures[0].arguments]


def written(kind):
    if isinstance(kind, argument_types.Tuple):
        return [written(each) for each in kind.members]
    return not kind.readonly if isinstance(kind, argument_types.Array) else None


def places(task):
    """The same of a task; None for arrays that it does not read."""
    tile = getattr(task.fits, "__self__", None)
    names = () if tile is None else ARRAYS
    idle = {name for name in names if name not in tile.used and not name.startswith("out_")}
    idle |= {f"out_{n}" for n in range(len(tile.store.kinds) if tile else 0, 3)}
    return [None if name in idle else place.written
            for name, place in zip_longest(names, task.places)]  # fmt: skip


def misfits(array, is_written, may_be_short):
    """Arrays that compiled code would misread, or write beyond the end of."""
    yield np.zeros(array.shape, np.complex64)
    if not may_be_short:
        yield array[:-1].copy()
    if array.itemsize > 1:
        yield np.zeros(array.shape, array.dtype.newbyteorder())
        odd = np.zeros(array.nbytes + 1, np.uint8)[1:]
        yield odd.view(array.dtype).reshape(array.shape)
    if is_written:
        fixed = array.copy()
        fixed.flags.writeable = False
        yield fixed


def changed(name, arguments, kinds):
    """The arguments with one array changed, for each array and each way to misfit."""
    for at, (value, kind) in enumerate(zip(arguments, kinds, strict=True)):
        if isinstance(value, tuple) and kind is not None:
            others = changed(name, value, kind)
        elif kind is None or not value.size:
            continue
        else:
            others = misfits(value, kind, (name, at) in SHORTER)
        for other in others:
            yield (*arguments[:at], other, *arguments[at + 1 :])


@pytest.mark.one_in(3)
@pytest.mark.parametrize("scene", SCENES)
def test_no_compiled_function_gets_an_array_that_does_not_fit(scene, monkeypatch):
    refused = 0
    for name, call, arguments, kinds in calls_of(SCENES[scene], monkeypatch):
        for others in changed(name, arguments, kinds):
            with pytest.raises(TypeError):
                call(*others)
            refused += 1
    assert refused > 5


def test_a_task_takes_contiguous_arrays_alone():
    task = loaded("elementwise").relu
    with pytest.raises(UnfitError, match="needs a contiguous array of float32, not float32"):
        task.words(1, [np.zeros((4, 4), np.float32).T, np.zeros((4, 4), np.float32)], (4,))


def test_an_array_in_a_file_is_an_array(tmp_path):
    values = np.memmap(tmp_path / "codes", np.int8, "w+", shape=(1 << 14,))
    values[:] = np.arange(1 << 14) % 100
    out = np.empty(values.shape, np.float32)
    loaded("elementwise").dequantize(values, np.float32(0.5), np.float32(4), out)
    np.testing.assert_array_equal(out, (values.astype(np.float32) - 4) / 2)


def attributes_of_kernels():
    """Module and attribute wherever library code, outside of kernels, uses `loaded(module)`."""
    for path in ROOT.rglob("*.py"):
        if "kernels" in path.relative_to(ROOT).parts:
            continue
        for function in ast.walk(ast.parse(path.read_text())):
            if not isinstance(function, ast.FunctionDef):
                continue
            modules = {}
            for node in ast.walk(function):
                if isinstance(node, ast.Assign) and len(node.targets) == 1:
                    left, right = (getattr(each, "elts", [each])
                                   for each in (node.targets[0], node.value))  # fmt: skip
                    modules |= {target.id: loaded_name(value)
                                for target, value in zip(left, right, strict=False)
                                if isinstance(target, ast.Name)}  # fmt: skip
            for node in ast.walk(function):
                if isinstance(node, ast.Attribute):
                    name = loaded_name(node.value) or modules.get(getattr(node.value, "id", ""))
                    if name:
                        yield path, name, node.attr


def loaded_name(node):
    called = isinstance(node, ast.Call) and getattr(node.func, "id", "") == "loaded" and node.args
    return node.args[0].value if called and isinstance(node.args[0], ast.Constant) else None


def test_all_of_the_library_goes_through_the_door():
    packages = ("tracer.interpreter.kernels", "tracer.accumulators.kernels",
                "tracer.accumulators.floats.kernels", "tracer.arithmetic.kernels")  # fmt: skip
    found = set(attributes_of_kernels())
    for path, module, attribute in found:
        files = {each: ROOT.parent / each.replace(".", "/") / f"{module}.py" for each in packages}
        homes = [each for each, file in files.items() if file.exists()]
        (home,) = [each for each in homes if hasattr(loaded(module, each), attribute)]
        what = getattr(loaded(module, home), attribute)
        marks = argument_types.Helper | argument_types.Emitted
        assert not isinstance(what, marks), (path, module, attribute)
    assert len(found) > 40


def test_windows_beyond_the_image_are_no_view():
    window = windows.window((9, 9), (3, 3), None, None, None, "NOTSET")
    with pytest.raises(UnfitError):
        windows.patches(np.zeros((1, 1, 9, 8), np.float32), window)


def test_inputs_that_are_not_aligned_are_taken_as_copies():
    x = np.zeros(4 * 20_000 + 1, np.uint8)[1:].view(np.float32).reshape(100, 200)
    model = single("Relu", {"x": np.zeros((100, 200), np.float32)})
    assert not x.flags.aligned and Interpreter(model).run(None, {"x": x})[0].shape == (100, 200)
