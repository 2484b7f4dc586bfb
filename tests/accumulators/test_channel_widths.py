"""A width for each output channel, against runs in which all channels have that width."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import tracer
from tests.accumulators.nodes import int8, model, multiplied, narrowed, uint8
from tests.examples import examples
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.kinds import with_widths
from tracer.accumulators.spec.policy import parse_policy
from tracer.accumulators.statistics.certificates import DataHash, certificate, guarantee
from tracer.accumulators.statistics.partial_sums import Tally
from tracer.analyzers.overflow import channels
from tracer.errors import InputError, ModelError, ThresholdError, UsageError
from tracer.graph import loading

LENET = "models/lenet/lenet.int8.onnx"
CONV = "node_Conv_22"
WIDTHS = (15, 18, 21, 15, 19, 22)
NODES = {
    "matmul": "(uint8[5,20] x) => (int32[r,c] y) { y = MatMulInteger (x, w) }",
    "conv": "(uint8[2,3,6,6] x) => (int32[n,m,h,v] y) { y = ConvInteger (x, w) }",
    "depthwise": "(uint8[2,4,6,6] x) => (int32[n,m,h,v] y) {y = ConvInteger <group = 4> (x, w)}",
}
SHAPES = {"matmul": (20, 4), "conv": (4, 3, 3, 3), "depthwise": (4, 1, 3, 3)}
INPUTS = {"matmul": (5, 20), "conv": (2, 3, 6, 6), "depthwise": (2, 4, 6, 6)}


@examples(12)
@given(
    st.sampled_from(sorted(NODES)),
    st.lists(st.integers(4, 22), min_size=4, max_size=4),
    st.sampled_from(["", "overflow=wrap", "order=tree", "product_bits=12", "zero_points=after"]),
)
def test_each_channel_is_summed_in_its_own_width(kind, widths, properties):
    proto, x = model(NODES[kind], w=int8(*SHAPES[kind])), uint8(*INPUTS[kind])
    written = f"({properties})" if properties else ""

    def run(width):
        out, emulation = narrowed(proto, parse_policy(f"{width}{written}"), x)
        (sums,) = emulation.accumulations().values()
        return out, sums.tally

    out, tally = run("/".join(map(str, widths)))
    for channel, bits in enumerate(widths):
        uniform, expected = run(bits)
        np.testing.assert_array_equal(out.take(channel, 1), uniform.take(channel, 1))
        for name in ("saturation_events", "outputs_changed", "max_abs_error", "acc_max"):
            assert getattr(tally, name)[channel] == getattr(expected, name)[channel], name
        mine, theirs = tally.overflow(), expected.overflow()
        assert mine.overflow_outputs[channel] == theirs.overflow_outputs[channel]
        assert mine.persistent_outputs[channel] == theirs.persistent_outputs[channel]
        at_ten = tally.overflow(10).overflow_outputs[channel]  # the width of all channels
        assert at_ten == expected.overflow(10).overflow_outputs[channel]


def test_sums_of_python_integers():
    x, w = uint8(3, 9), int8(9, 2)
    proto = model("(uint8[3,9] x) => (int32[r,c] y) { y = MatMulInteger (x, w) }", w=w)
    out, _ = narrowed(proto, parse_policy("11/16"), x)
    for column, bits in enumerate((11, 16)):
        np.testing.assert_array_equal(out[:, [column]], multiplied(x, w[:, [column]], bits))


def sums(bits):
    trace = tracer.interpret(LENET, accumulator=f"{CONV}={bits},*=24", batch=4)
    return trace, next(each for each in trace.runs[0].sums if each.node == CONV)


@pytest.mark.nightly
def test_a_network_its_table_and_its_file(tmp_path):
    trace, own = sums("/".join(map(str, WIDTHS)))
    trace.save(tmp_path / "widths.trace")
    again = tracer.load(tmp_path / "widths.trace")
    for each in (trace, again):
        row = each.to_pandas().set_index("node").loc[CONV]
        assert row["bits"] == max(WIDTHS)
        uniform = {bits: sums(bits)[1].tally.overflow().overflow_outputs for bits in set(WIDTHS)}
        expected = [uniform[bits][channel] for channel, bits in enumerate(WIDTHS)]
        assert row["overflow_outputs"] == sum(expected) > 0
        (kept,) = (s for s in each.runs[0].sums if s.node == CONV)
        assert kept.tally == own.tally
        by_channel = channels(kept)
        assert by_channel["bits"].tolist() == list(WIDTHS)
        assert by_channel["overflow_outputs"].tolist() == expected


def test_a_certificate_holds_the_width_of_each_channel():
    w, x = np.array([[1, 3], [1, 3]], np.int8), np.array([[50, 20]], np.uint8)
    proto = model("(uint8[1,2] x) => (int32[1,2] y) { y = MatMulInteger (x, w) }", w=w)
    loaded, data = loading.from_proto(proto), DataHash()
    data.add({"x": x})  # sums of 70 and of 210: 8 and 9 bits

    def certified(text):
        policy = parse_policy(text)
        _, emulation = narrowed(proto, policy, x)
        tallies = {key: each.tally for key, each in emulation.accumulations().items()}
        certificate(loaded, data, tallies, policy).check(loaded, data, tallies, policy)
        return guarantee("sha", emulation.accumulations(), list(tallies))

    assert certified("8/9") is None  # for any input, no channel is promised
    assert certified("16/12") is not None  # two products of 255 by 3: 12 bits
    with pytest.raises(ThresholdError, match="overflows"):
        certified("9/8")


def test_a_file_lists_the_bits(tmp_path):
    path = tmp_path / "policy.toml"
    path.write_text(f'["{CONV}"]\nbits = {list(WIDTHS)}\norder = "tree"\n["*"]\nbits = 24\n')
    entry = parse_policy(str(path)).accumulators[0]
    assert entry.value == Accumulator(22, order="tree", widths=WIDTHS)
    assert str(entry.value) == "15/18/21/15/19/22(order=tree)"
    assert Accumulator.from_plain(entry.value.to_plain()) == entry.value
    path.write_text(f'["{CONV}"]\nbits = [16, "18"]\n')
    with pytest.raises(UsageError, match="bits = "):
        parse_policy(str(path))
    path.write_text(f'["{CONV}"]\nbits = []\n')
    with pytest.raises(UsageError, match="no width"):
        parse_policy(str(path))


@pytest.mark.parametrize("text", ["1/18", "16/99", "16/", "/16", "16//18"])
def test_what_is_no_width_is_refused(text):
    with pytest.raises(UsageError):
        parse_policy(text)


def test_another_number_of_channels_is_an_error():
    with pytest.raises(ModelError, match="widths for 2 channels, and the node has 6"):
        tracer.interpret(LENET, accumulator=f"{CONV}=16/18,*=24")


@pytest.mark.nightly
def test_stored_statistics_have_a_width_for_each_channel():
    _, own = sums("16/18/18/18/20/22")
    other = with_widths(Accumulator(18), (16, 18))
    with pytest.raises(InputError, match="have 6 channels, and widths for 2"):
        Tally.from_arrays(own.tally.arrays(), other)
