"""RNN, LSTM and GRU are replayed with onnxruntime's bits."""

import numpy as np
import pytest
from onnx import helper

from tracer.arithmetic.kernel import Kernel, NotKnown, are_equal, reveal
from tracer.arithmetic.replays import replay_of

FLOAT = np.dtype(np.float32)
GATES = {"LSTM": 4, "GRU": 3, "RNN": 1}


@pytest.mark.one_in(3)
@pytest.mark.parametrize("batch", [1, 3])
@pytest.mark.parametrize(
    ("op_type", "attributes"),
    [
        ("LSTM", {"direction": "bidirectional"}),
        ("LSTM", {"clip": 0.5, "activations": ["Sigmoid", "Relu", "Tanh"]}),
        ("GRU", {"direction": "reverse"}),
        ("GRU", {"direction": "bidirectional", "linear_before_reset": 1}),
        ("LSTM", {"activations": ["HardSigmoid", "Tanh", "Softsign"]}),
        ("GRU", {"activations": ["HardSigmoid", "Tanh"]}),
        ("RNN", {"direction": "bidirectional"}),
        ("RNN", {"activations": ["HardSigmoid"]}),
        ("RNN", {"activations": ["Relu"]}),
        ("RNN", {"direction": "reverse", "activations": ["Sigmoid"], "clip": 0.3}),
    ],
)
def test_a_recurrent_operator_has_the_bits_of_onnxruntime(op_type, attributes, batch):
    steps, inputs, size = 5, 40, 24
    both = 1 + (attributes.get("direction") == "bidirectional")
    random, rows = np.random.default_rng(0), GATES[op_type] * size
    draw = lambda *shape: (random.standard_normal(shape) / 3).astype(np.float32)  # noqa: E731
    constants = {
        "w": draw(both, rows, inputs), "r": draw(both, rows, size), "b": draw(both, 2 * rows)
    }  # fmt: skip
    states = ["h", "c"][: 1 + (op_type == "LSTM")]
    node = helper.make_node(
        op_type, ["x", "w", "r", "b", "", *states], ["y", "y_h", "y_c"][: 1 + len(states)],
        hidden_size=size, **attributes,
    )  # fmt: skip
    taken = {
        "x": (FLOAT, (steps, batch, inputs)),
        **dict.fromkeys(states, (FLOAT, (both, batch, size))),
    }
    kernel = Kernel(node, taken, constants, {"": 17})
    replay = replay_of("", op_type)
    rule = reveal(replay, kernel)
    values = kernel.draw(np.random.default_rng(7))
    for unusual in (0, np.nan, np.inf, -np.inf):  # which a limit, or a function, may end
        values["x"][1, -1, 3] = unusual
        with np.errstate(all="ignore"):
            pairs = zip(kernel.run(values), replay.replay(kernel, rule.facts, values), strict=True)
            assert all(are_equal(*pair).all() for pair in pairs)


def test_what_is_not_known_of_a_layer_is_named_alone():
    stored = {"w": np.ones((1, 2, 3), np.float32), "r": np.ones((1, 2, 2), np.float32)}
    node = helper.make_node(
        "RNN", ["x", *stored], ["y"], hidden_size=2, activations=["Affine"], activation_alpha=[0.5]
    )
    kernel = Kernel(node, {"x": (FLOAT, (4, 1, 3))}, stored, {"": 17})
    with pytest.raises(NotKnown, match="a layer with activation_alpha is not known"):
        reveal(replay_of("", "RNN"), kernel)


@pytest.mark.parametrize(("steps", "size"), [(4, 17), (1, 17), (3, 5)])
def test_the_last_columns_of_one_row_have_an_order_of_their_own(steps, size):
    draw = np.random.default_rng(0).standard_normal
    shapes = {"w": (1, size, 10), "r": (1, size, size), "b": (1, 2 * size)}
    stored = {name: draw(shape, np.float32) for name, shape in shapes.items()}
    node = helper.make_node("RNN", ["x", *stored], ["y"], hidden_size=size)
    kernel = Kernel(node, {"x": (FLOAT, (steps, 1, 10))}, stored, {"": 17}, 1)
    replay, drawn = replay_of("", "RNN"), {"x": draw((steps, 1, 10), np.float32)}
    rule = reveal(replay, kernel)
    assert rule.text.count("columns") == 2
    assert are_equal(kernel.run(drawn)[0], replay.replay(kernel, rule.facts, drawn)[0]).all()
