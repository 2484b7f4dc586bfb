"""Resize is replayed with onnxruntime's bits."""

import numpy as np
import pytest
from onnx import helper

from tracer.arithmetic.kernel import Kernel, are_equal, reveal
from tracer.arithmetic.replays import replay_of

FLOAT = np.dtype(np.float32)


def check(shape, stored, opset=13, op_type="Resize", **attributes):
    """Asserts that random outputs are replayed. `stored` is the scales, or the integral sizes."""
    stored = np.array(stored)
    is_sizes = stored.dtype.kind == "i"
    has_roi = op_type == "Resize" and opset > 10
    names = ["x", *([""] if has_roi else []), *(["", "s"] if is_sizes else ["s"])]
    value = stored if is_sizes else stored.astype(np.float32)
    node = helper.make_node(op_type, names, ["y"], **attributes)
    kernel = Kernel(node, {"x": (FLOAT, shape)}, {"s": value}, {"": opset}, 2)
    replay = replay_of("", op_type)
    rule = reveal(replay, kernel)
    drawn = kernel.draw(np.random.default_rng(3))
    assert are_equal(kernel.run(drawn)[0], replay.replay(kernel, rule.facts, drawn)[0]).all()


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
@pytest.mark.parametrize(
    "coordinates", ["half_pixel", "align_corners", "asymmetric", "pytorch_half_pixel"]
)
@pytest.mark.parametrize("scales", [(2, 1.7), (0.6, 3.3), (1, 2)])
def test_images(mode, coordinates, scales):
    check((1, 3, 9, 10), [1.0, 1, *scales], mode=mode, coordinate_transformation_mode=coordinates)


@pytest.mark.parametrize("mode", ["nearest", "linear", "cubic"])
def test_sizes_of_some_axes(mode):
    check((1, 3, 9, 10), [1, 3, 17, 23], mode=mode)
    check((1, 3, 9, 10), [17, 23], 18, mode=mode, axes=[2, 3])


@pytest.mark.parametrize("mode", ["linear", "cubic"])
def test_sizes_that_a_graph_computes(mode):
    """The rule holds for other sizes of another run."""
    node = helper.make_node("Resize", ["x", "", "", "s"], ["y"], mode=mode)
    inputs = {"x": (FLOAT, (1, 3, 9, 10)), "s": (np.dtype(np.int64), (4,))}
    sizes = np.array([[1, 3, 17, 23], [1, 3, 5, 11]])
    kernel = Kernel(node, inputs, {}, {"": 13}, 1, {"s": sizes[0]})
    replay = replay_of("", "Resize")
    rule = reveal(replay, kernel)
    for each in sizes:
        drawn = {**kernel.draw(np.random.default_rng(3)), "s": each}
        assert are_equal(kernel.run(drawn)[0], replay.replay(kernel, rule.facts, drawn)[0]).all()


def test_other_layouts():
    check((1, 9, 10, 4), [1, 2, 2.5, 1], mode="linear")
    check((1, 2, 5, 6, 7), [1.0, 1, 2, 2, 2], mode="linear")
    check((3, 9, 10), [1, 2, 2.5], mode="linear")
    check((9, 10), [2, 2.5], mode="linear")


def test_cubic_weights():
    check((1, 2, 9, 10), [1, 1, 2, 2.5], mode="cubic", exclude_outside=1)
    check((1, 2, 9, 10), [1, 1, 2, 2.5], mode="cubic", cubic_coeff_a=-0.5)


def test_older_operators():
    check((1, 2, 9, 10), [1, 1, 2, 2.5], 10, mode="linear")
    check((1, 2, 9, 10), [1.0, 1, 2, 2], 9, "Upsample", mode="linear")
