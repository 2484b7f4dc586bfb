"""Convolutions are replayed with onnxruntime's bits, whatever their form and layout."""

from pathlib import Path

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from onnx import helper

from tests.examples import examples
from tracer.arithmetic import runs
from tracer.arithmetic.kernel import Kernel, are_equal, reveal
from tracer.arithmetic.replays import KnownRules, conv, replay_of
from tracer.executors.settings import OrtSettings
from tracer.graph import loading
from tracer.inputs.request import make_feeds

FLOAT = np.dtype(np.float32)
MODELS = Path(__file__).parents[2] / "models"
DOMAINS = {"Conv": "", "FusedConv": "com.microsoft", "blocks": conv.BLOCKS_DOMAIN}
OPSETS = {"": 17, "com.microsoft": 1, conv.BLOCKS_DOMAIN: 1}


def convolution(form, x, w, extras=(), threads=1, attributes=None):
    """Returns the kernel of a convolution; `extras` are "bias" and "residual"."""
    random, attributes = np.random.default_rng(0), attributes or {}
    drawn = {"x": FLOAT, "w": FLOAT}
    constants = {"w": random.standard_normal(w).astype(FLOAT)}
    plain = {k: v for k, v in attributes.items() if not k.startswith("activation")}
    node = helper.make_node("Conv", [*drawn], ["y"], **plain)
    out = Kernel(node, {"x": (FLOAT, x)}, constants, OPSETS).run({"x": np.zeros(x, FLOAT)})[0].shape
    inputs = {"x": (FLOAT, x)}
    if "bias" in extras:
        constants["b"] = random.standard_normal(w[0]).astype(FLOAT)
    if "residual" in extras:
        inputs["z"] = FLOAT, out
    names = ["x", "w", *(name if name in {**constants, **inputs} else "" for name in "bz")]
    while not names[-1]:
        names.pop()
    node = helper.make_node(
        "Conv" if form == "blocks" else form, names, ["y"], domain=DOMAINS[form], **attributes
    )
    return Kernel(node, inputs, constants, OPSETS, threads)


def assert_equal_bits(kernel):
    replay = replay_of(kernel.node.domain, kernel.op_type)
    rule = reveal(replay, kernel)
    inputs = kernel.draw(np.random.default_rng(7))
    replayed = replay.replay(kernel, rule.facts, inputs)
    for output, found in zip(kernel.run(inputs), replayed, strict=True):
        assert are_equal(output, found).all()
    return rule


@st.composite
def forms(draw):
    """Draws a convolution: form, shapes, attributes, what else is added, threads."""
    form = draw(st.sampled_from([*DOMAINS]))
    rank = 2 if form == "blocks" else draw(st.sampled_from([1, 2, 2, 3]))
    block = conv.block_size() if form == "blocks" else 1
    group = draw(st.sampled_from([1, 1, 2, 4]))
    channels, maps = (draw(st.integers(1, 3 if block > 1 else 40)) for _ in range(2))
    if block > 1 and group == 1 and draw(st.booleans()):  # the kernel for images
        channels, block_in = draw(st.integers(1, 3)), 1
    else:
        block_in = block
    kernel = [draw(st.integers(1, 5 if rank < 3 else 3)) for _ in range(rank)]
    size = [draw(st.integers(1, 14 if rank < 3 else 6)) for _ in range(rank)]
    attributes = {
        "group": group,
        "strides": [draw(st.integers(1, 2)) for _ in range(rank)],
        "dilations": [draw(st.sampled_from([1, 1, 2])) for _ in range(rank)],
        "pads": [draw(st.integers(0, k - 1)) for k in kernel * 2],
    }
    spans = zip(size, kernel, attributes["dilations"], strict=True)
    assume(all(n >= (k - 1) * d + 1 for n, k, d in spans))
    images = draw(st.integers(1, 2))
    shapes = (images, channels * block_in * group, *size), (
        maps * block * group, channels * block_in, *kernel,
    )  # fmt: skip
    extras = draw(st.sampled_from([(), ("bias",), ("bias", "residual"), ("residual",)]))
    if form == "Conv":
        extras = tuple(extra for extra in extras if extra == "bias")
    else:
        attributes["activation"] = draw(st.sampled_from(["Relu", "Sigmoid", "Tanh"]))
    return form, *shapes, extras, draw(st.integers(1, 2)), attributes


@given(forms())
@examples(40)
def test_any_form_has_the_bits_of_onnxruntime(form):
    assert_equal_bits(convolution(*form))


@pytest.mark.nightly
@given(forms())
@settings(max_examples=200, deadline=None)
def test_200_forms_have_the_bits_of_onnxruntime(form):
    assert_equal_bits(convolution(*form))


@pytest.mark.parametrize(
    ("form", "x", "w", "attributes", "text"),
    [
        ("Conv", (1, 16, 32, 32), (16, 16, 3, 3), {}, "fused multiply-add, in blocks of 128"),
        ("Conv", (1, 64, 7, 7), (64, 64, 3, 3), {"pads": [1] * 4}, "in blocks of 256, then"),
        ("Conv", (1, 32, 9, 9), (32, 1, 3, 3), {"group": 32}, "multiply, then add, in blocks of 4"),
        (
            "Conv",
            (1, 32, 3, 3),
            (48, 32, 3, 3),
            {},
            "in lanes, each of every 8th term",
        ),
        ("blocks", (1, 256, 7, 7), (32, 256, 1, 1), {}, "in blocks of 128 channels"),
        ("blocks", (1, 32, 9, 9), (32, 1, 3, 3), {"group": 32}, "in blocks of 1 channel"),
    ],
)
def test_the_order_is_that_of_mlas(form, x, w, attributes, text):
    assert text in assert_equal_bits(convolution(form, x, w, attributes=attributes)).text


@pytest.mark.parametrize(
    ("activation", "numbers"),
    [("LeakyRelu", [0.1]), ("Clip", [0.0, 6.0]), ("HardSigmoid", [0.2, 0.5])],
)
def test_activations_with_parameters_have_the_bits_of_onnxruntime(activation, numbers):
    attributes = {"activation": activation, "activation_params": numbers}
    for form in ("FusedConv", "blocks"):
        kernel = convolution(form, (1, 16, 9, 9), (16, 16, 3, 3), ["bias"], attributes=attributes)
        assert_equal_bits(kernel)


@pytest.mark.one_in(5)
@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("level", ["none", "extended", "all"])
@pytest.mark.parametrize("name", ["lenet/lenet", "resnet_cifar/resnet20"])
def test_convolutions_of_models_have_the_bits_of_onnxruntime(name, level, threads, tmp_path):
    model = loading.load(MODELS / f"{name}.onnx")
    graph = runs.SavedGraph.of(model, OrtSettings(optimization=level, threads=threads))
    values, rules = graph.runner(model)(make_feeds(model).feeds), KnownRules(tmp_path)
    nodes = [node for node in graph.nodes if node.op_type.endswith("Conv")]
    for node in nodes:
        kernel = graph.kernel(node, values)
        replayed = runs.replay(kernel, rules.of(kernel), {n: values[n] for n in kernel.inputs})
        assert are_equal(values[node.output[0]], replayed[0]).all(), node.name
    assert len(nodes) >= 2


@pytest.mark.parametrize(
    ("op_type", "shape", "attributes"),
    [
        ("ReorderInput", (2, 32, 5, 7), {}),
        ("ReorderInput", (2, 5, 7, 32), {"channels_last": 1}),
        ("ReorderOutput", (2, 32, 5, 7), {"channels": 27}),
        ("ReorderOutput", (2, 32, 5, 7), {"channels": 32, "channels_last": 1}),
        ("Upsample", (2, 32, 5, 7), {"scales": [1, 1, 2, 3], "mode": "nearest"}),
    ],
)
def test_moves_into_blocks_of_channels_have_the_bits_of_onnxruntime(op_type, shape, attributes):
    node = helper.make_node(op_type, ["x"], ["y"], domain=conv.BLOCKS_DOMAIN, **attributes)
    assert_equal_bits(Kernel(node, {"x": (FLOAT, shape)}, {}, OPSETS))
