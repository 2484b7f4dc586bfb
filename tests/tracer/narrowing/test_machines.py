"""Networks for the registers of machines: pairs by the words of each preset, in plain loops."""

from __future__ import annotations

import hashlib
import json

import numpy as np
import onnx
import onnxruntime as ort
import pytest
from hypothesis import given
from hypothesis import strategies as st
from onnx import numpy_helper

import tracer
from tests.interpreter.models import quick
from tests.nets import Builder
from tests.tracer.cli.narrow.command import run
from tests.tracer.narrowing.oracle import Stored
from tracer.accumulators.hardware import presets
from tracer.errors import UsageError
from tracer.narrowing.fitting import fit_layer, fits_already
from tracer.narrowing.layers import Grid, Layer
from tracer.narrowing.requirement import Need, parse_widths
from tracer.narrowing.samples import LayerSamples
from tracer.records import environment

POSITIONS_FIRST = ("x86-maddubs", "fbgemm-acc16", "gemmlowp-2in16")
BY_POSITION = {"xnnpack-c2": 8, "onednn-u8s8": 1}
"""Machines that begin anew at each position, and how far apart the two terms of a pair are."""


def groups(machine, channels, window):
    """The terms (channel x window + position) that share a register of 16 bits."""
    order = [c * window + p for c in range(channels) for p in range(window)]
    if machine in POSITIONS_FIRST:
        order = [c * window + p for p in range(window) for c in range(channels)]
    rows = [order]
    if machine in BY_POSITION:
        rows = [[c * window + p for c in range(channels)] for p in range(window)]
    if machine in BY_POSITION or machine == "gemmlowp-2in16":
        apart = BY_POSITION.get(machine, 8)
        blocks = [row[k : k + 2 * apart] for row in rows for k in range(0, len(row), 2 * apart)]
        return [block[n::apart] for block in blocks for n in range(min(apart, len(block)))]
    size = {"fbgemm-acc16": 256, "qnnpack-acc16": len(order), "two-level(16,5,32)": 5}
    step = size.get(machine, 2)
    return [order[k : k + step] for k in range(0, len(order), step)]


def fits(rows, machine, shape, low=0, high=255):
    """Whether no inputs from `low` to `high` make rows (M, K) exceed 16 bits in a register."""
    up, down = (np.maximum(rows * end, rows * other) for end, other in ((high, low), (-high, -low)))
    parts = groups(machine, *shape)
    most, least = (max(each[:, part].sum(1).max() for part in parts) for each in (up, down))
    return most < 1 << 15 and least <= 1 << 15


def samples(seed, channels, window, count, zero):
    """A convolution of `count` groups with large weights, and what it reads: bytes less `zero`."""
    random = np.random.default_rng(seed)
    integers = random.integers(-127, 128, (2 * count, channels * window)).astype(float)
    integers[:, random.random(integers.shape[1]) < 0.5] //= 8
    grid = Grid(0.02, -zero, 255 - zero, zero)
    shape = (2 * count, channels, window)
    layer = Layer("l", "Conv", integers, random.uniform(0.01, 1, 2 * count), None, grid,
                  shape, False, count, {})  # fmt: skip
    read = random.integers(-zero, 256 - zero, (60, count, channels * window)) * grid.step
    parts = np.einsum("ngk,gmk->ngm", read, layer.weights.reshape(count, 2, -1))
    return LayerSamples(layer, read, read, parts.reshape(60, -1))


MACHINES = ("x86-maddubs", "fbgemm-acc16", "gemmlowp-2in16", "qnnpack-acc16", "xnnpack-c2",
            "onednn-u8s8", "two-level(16,5,32)")  # fmt: skip
LAYERS = st.builds(
    samples, st.integers(0, 2**32 - 1), st.integers(1, 9), st.sampled_from([1, 4, 9]),
    st.integers(1, 3), st.sampled_from([0, 100]),
)  # fmt: skip


@quick
@given(LAYERS, st.sampled_from(MACHINES))
def test_no_input_exceeds_the_registers_of_a_machine(samples, machine):
    layer, (_, (width,)) = samples.layer, parse_widths(machine, None, "any-input")
    need: Need = width.entries[0].value
    ends = (0, 255) if need.reads_stored else (layer.grid.low, layer.grid.high)
    assert need.reads_stored == (machine != "two-level(16,5,32)")
    assert fits_already(samples, need) == fits(layer.integers, machine, layer.shape[1:], *ends)
    fit = fit_layer(samples, layer.grid, need.registers(layer.depth, layer.kernel))
    assert fits(fit.integers, machine, layer.shape[1:], *ends)
    for row, own in enumerate(layer.integers):
        if fits(own[None], machine, layer.shape[1:], *ends):  # it stays, bit for bit
            np.testing.assert_array_equal(fit.integers[row], own)
            assert fit.scales[row] == layer.scales[row]


@pytest.fixture(scope="module")
def narrowed(tmp_path_factory):
    """An int8 network, its narrowed form for `x86-maddubs`, data, and the result."""
    folder = tmp_path_factory.mktemp("machine")
    random = np.random.default_rng(3)
    net = Builder("net", x=("N", 3, 6, 6))
    net.node("Conv", "c", "x", net.weight("cw", 8, 3, 3, 3), net.weight("cb", 8), pads=[1] * 4)
    net.node("Relu", "r", "c")
    depthwise = net.weight("dw", 8, 1, 3, 3)
    net.node("Conv", "d", "r", depthwise, net.weight("db", 8), group=8, pads=[1] * 4)
    net.node("Relu", "s", "d")
    net.node("Flatten", "f", "s", axis=1)
    net.node("Gemm", "g", "f", net.weight("gw", 288, 5), net.weight("gb", 5))
    x = random.normal(0, 1, (64, 3, 6, 6)).astype(np.float32)
    np.savez(folder / "data.npz", x=x)
    onnx.save(net.model("g"), folder / "net.onnx")
    given = tracer.quantize(
        folder / "net.onnx", folder / "data.npz", metric="noise", output=folder / "int8.onnx"
    )
    path = folder / "for.onnx"
    result = tracer.narrow(folder / "int8.onnx", "x86-maddubs", folder / "data.npz", output=path,
                           metric="noise")  # fmt: skip
    return given.proto, path, x, result


def test_pairs_that_fit_stay_bit_for_bit(narrowed):
    before, path, _, result = narrowed
    old, new = Stored(before), Stored(onnx.load(path))
    changed = {node.node for node in result.nodes if node.measure}
    assert changed and all(node.fits and node.bits == 16 for node in result.nodes)
    for name, node in old.layers.items():
        rows, after = old.rows(name), new.rows(name)
        if node.op_type == "Conv" and rows.shape[1] == 9:  # depthwise: exact in onnxruntime
            np.testing.assert_array_equal(rows, after)
            continue
        window = 9 if node.op_type == "Conv" else 1
        shape = rows.shape[1] // window, window
        assert fits(after, "x86-maddubs", shape)
        for own, other in zip(rows, after, strict=True):
            if fits(own[None], "x86-maddubs", shape):
                np.testing.assert_array_equal(own, other)


def test_kernels_with_and_without_pairs_compute_the_same(narrowed):
    """onnxruntime's kernels here, and those of weights that it makes unsigned: they are exact."""
    before, path, x, _ = narrowed

    def computed(model, precision):
        options = ort.SessionOptions()
        options.add_session_config_entry("session.x64quantprecision", precision)
        return ort.InferenceSession(model, options).run(None, {"x": x})[0]

    after = path.read_bytes()
    np.testing.assert_array_equal(computed(after, "0"), computed(after, "1"))
    if environment.saturates(environment.cpu_flags()):
        original = before.SerializeToString()
        assert (computed(original, "0") != computed(original, "1")).any()


def test_the_certificate_names_the_preset_and_notices_a_changed_weight(narrowed, capfd, tmp_path):
    _, path, _, _ = narrowed
    proof = path.with_suffix(".certificate.json")
    stated = json.loads(proof.read_bytes())
    preset = presets()["x86-maddubs"]
    assert stated["machine"] == {
        "name": preset.name, "source": preset.source, "status": preset.status,
    }  # fmt: skip
    assert run(capfd, path, "--check-certificate", proof, "--top", 1)[0] == 0
    proto = onnx.load(path)
    stored = Stored(proto)
    (name,) = [key for key, node in stored.layers.items() if node.op_type == "Gemm"]
    weights = stored.made[stored.layers[name].input[1]].input[0]
    tensor = next(each for each in proto.graph.initializer if each.name == weights)
    tensor.CopyFrom(numpy_helper.from_array(np.full_like(stored.values[weights], 127), weights))
    onnx.save(proto, tmp_path / "changed.onnx")
    forged = tmp_path / "forged.json"
    stated["model_sha256"] = hashlib.sha256((tmp_path / "changed.onnx").read_bytes()).hexdigest()
    forged.write_text(json.dumps(stated))
    for certificate, reason in ((proof, "for another model"), (forged, "has no bounds")):
        code, _, err = run(capfd, tmp_path / "changed.onnx", "--check-certificate", certificate)
        assert (code, reason in err) == (1, True), err


def test_other_accumulators_are_refused():
    for spelling, why in (
        ("fp16", "does not add integers"), ("18(overflow=wrap)", "is no machine"),
        ("x86-maddubs,18", "is no machine"),
    ):  # fmt: skip
        with pytest.raises(UsageError, match=why):
            parse_widths(spelling, None, "any-input")
    with pytest.raises(UsageError, match="registers of its own"):
        parse_widths("x86-maddubs", 2, "any-input")


@pytest.mark.nightly
def test_a_machine_whose_registers_hold_all_changes_nothing(narrowed):
    before, path, _, _ = narrowed
    result = tracer.narrow(before, "arm-dot", path.parent / "data.npz", metric="noise")
    assert result.notes[0].startswith("nothing to change") and not result.nodes
