"""Policies: the accumulator of each node, and the messages for invalid entries."""

import fnmatch

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs import residual
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.accumulators.spec.operand_format import FixedPoint, Formats, formats
from tracer.accumulators.spec.orders import Chunked
from tracer.accumulators.spec.policy import Policy, parse_policy
from tracer.errors import InputError, UsageError
from tracer.graph import loading

RESIDUAL = loading.from_proto(residual()).nodes  # c1 r1 c2 sum r2 pool flat y


@pytest.fixture
def nodes():
    return RESIDUAL


def bits(policy, nodes):
    return {key: rule.accumulator.bits for key, rule in policy.assign(nodes).items()}


def test_a_number_alone_is_for_every_node(nodes):
    assert bits(parse_policy("18"), nodes) == dict.fromkeys((node.key for node in nodes), 18)


def test_the_first_entry_that_matches_counts(nodes):
    widths = bits(parse_policy("c1=18, Conv=16,[rs]*=12,*=17"), nodes)
    assert widths == {"c1": 18, "c2": 16, "r1": 12, "sum": 12, "r2": 12,
                     "pool": 17, "flat": 17, "y": 17}  # fmt: skip
    assert list(widths) == [node.key for node in nodes]


def test_nodes_that_nothing_matches_have_no_rule(nodes):
    assert bits(parse_policy("Conv=16"), nodes) == {"c1": 16, "c2": 16}


def test_modules_match_too():
    proto = residual()
    meta = proto.graph.node[0].metadata_props.add()
    meta.key, meta.value = "io.github.tracer-onnx.module", "stage1.conv1"
    assert bits(parse_policy("stage1.*=9"), loading.from_proto(proto).nodes) == {"c1": 9}


def test_a_name_with_brackets_is_itself():
    proto = residual()
    proto.graph.node[0].name = "conv[0]"
    assert bits(parse_policy("conv[0]=9"), loading.from_proto(proto).nodes) == {"conv[0]": 9}


@given(st.text("c12*?y", min_size=1, max_size=3))
def test_patterns_are_those_of_a_shell(pattern):
    nodes = RESIDUAL
    wanted = [n.key for n in nodes if fnmatch.filter([n.key, n.op_type], pattern)]
    if not wanted:
        with pytest.raises(UsageError):
            parse_policy(f"{pattern}=9").assign(nodes)
    else:
        assert list(parse_policy(f"{pattern}=9").assign(nodes)) == wanted


def test_what_an_entry_does_not_say_comes_from_the_defaults(nodes):
    like = Accumulator(2, "wrap", Chunked(32), 16, "last", "magnitude")
    rule = parse_policy("c1=18", like=like).assign(nodes)["c1"]
    assert rule.accumulator == Accumulator(18, "wrap", Chunked(32), 16, "last", "magnitude")
    assert rule.format is None


def test_formats_go_by_patterns_of_their_own(nodes):
    rules = parse_policy("16", "c1=16:8,*=8:5/8:7").assign(nodes)
    assert rules["c1"].format == Formats(FixedPoint(16, 8), FixedPoint(16, 8))
    assert rules["y"].format == Formats(FixedPoint(8, 5), FixedPoint(8, 7))
    only = parse_policy("16", "Conv=8:5").assign(nodes)
    assert (only["c2"].format is None, only["y"].format) == (False, None)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "incomplete"),
        ("c1=", "entry 'c1=' is incomplete"),
        ("=8", "entry '=8' is incomplete"),
        ("16,,17", "incomplete"),
        ("c1", "'c1' is not an accumulator. It is one as .*18"),
        ("c1=8.5", "accumulator 'c1=8.5': '8.5' is not an accumulator"),
        ("c1=-8", "'-8' is not an accumulator"),
        ("c1=²", "is not an accumulator"),
        ("c1=18,c2=65", r"accumulator 'c2=65': an accumulator of 65 bits\. Widths from 2 to 64"),
        ("1", r"accumulator '1': an accumulator of 1 bit\."),
        ("c1=" + "9" * 5000, "is not an accumulator"),
    ],
)
def test_an_entry_that_cannot_be_is_named(text, message):
    with pytest.raises(UsageError, match=message):
        parse_policy(text)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("cc1=18", r"entry 'cc1=18' matches no node.*Did you mean .*'c1'"),
        ("conv=18,*=17", r"entry 'conv=18' matches no node.*Conv"),
        ("Zzzz=18", r"There are Conv, Relu, Add, GlobalAveragePool, Flatten, Gemm, c1, .*, …"),
        ("*=17,c1=18", r"entry 'c1=18' has no effect: .* \(e.g. 'c1'\)"),
    ],
)
def test_an_entry_that_matches_nothing_is_an_error(text, message, nodes):
    with pytest.raises(UsageError, match=message):
        parse_policy(text).assign(nodes)


def test_the_rest_may_be_empty(nodes):
    names = ",".join(f"{node.key}=8" for node in nodes)
    assert set(bits(parse_policy(f"{names},*=9"), nodes).values()) == {8}


def test_a_format_that_matches_nothing_is_an_error_too(nodes):
    with pytest.raises(UsageError, match="entry 'conv9=8:5' matches no node"):
        parse_policy("16", "conv9=8:5").assign(nodes)


POLICY = """
["c1"]
bits = 18
overflow = "wrap"
order = "chunked(32)"

["Conv"]
bits = 16
bias = "last"
product_bits = 12
convention = "magnitude"
fixed = "8:5/8:7"

["*"]
bits = 17
"""


def test_a_file_says_everything(nodes, tmp_path):
    (tmp_path / "p.toml").write_text(POLICY)
    rules = parse_policy(str(tmp_path / "p.toml")).assign(nodes)
    assert rules["c1"].accumulator == Accumulator(18, "wrap", Chunked(32))
    assert rules["c2"].accumulator == Accumulator(
        16, product_bits=12, bias="last", convention="magnitude"
    )
    assert rules["c2"].format == formats("8:5/8:7")
    assert (rules["y"].accumulator.bits, rules["y"].format) == (17, None)
    over = parse_policy(str(tmp_path / "p.toml"), "y=4:2").assign(nodes)
    assert (over["y"].format, over["c2"].format) == (formats("4:2"), formats("8:5/8:7"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "no table"),
        ("bits = 3", r'\["bits"\] of .*outside any table'),
        ("[c1]\nbits = -8", "an accumulator of -8 bits"),
        ("[c1]\nbits = 65", r'\["c1"\] of .*p\.toml: an accumulator of 65 bits'),
        ("[c1]\nbits = '8'", "bits = '8'.*whole number"),
        ("[c1]\nbits = true", "bits = True.*whole number"),
        ("[c1]\noverflow = 'wrap'", "bits are missing"),
        ("[c1]\nbits = 8\nwidth = 8", "'width' is not known.*bits, accumulator, overflow"),
        ("[c1]\nbits = 8\norder = 'random'", "'random' is not an order"),
        ("[c1]\nbits = 8\noverflow = 'clip'", "overflow 'clip'.*saturate"),
        ("[c1]\nbits = 8\nfixed = '8'", "'8' is not a fixed-point format"),
        ("[stage1.conv1]\nbits = 8", "a table 'conv1' in a table.*quoted"),
    ],
)
def test_an_invalid_file_is_named_with_its_entry(text, message, tmp_path):
    (tmp_path / "p.toml").write_text(text)
    with pytest.raises(UsageError, match=message):
        parse_policy(str(tmp_path / "p.toml"))


def test_a_file_that_cannot_be_read_is_said_so(tmp_path):
    with pytest.raises(InputError, match=r"no\.toml: cannot be read"):
        parse_policy(str(tmp_path / "no.toml"))
    (tmp_path / "p.toml").write_bytes(b"\xff[[[")
    with pytest.raises(InputError, match="not TOML"):
        parse_policy(str(tmp_path / "p.toml"))


def test_one_accumulator_for_all(nodes):
    policy = Policy.of(Accumulator(20), formats("8:4"))
    assert set(bits(policy, nodes).values()) == {20}
    assert policy.assign(nodes)["y"].format == formats("8:4")


@pytest.mark.parametrize("text", ["8", "8:", ":5", "8:5:3", "a:b", "8:5/", "8:5/8:7/8:7", "1:0",
                                  "33:0", "8:65", "8:-65", "99999:1"])  # fmt: skip
def test_formats_that_cannot_be_are_refused(text):
    with pytest.raises(UsageError):
        formats(text)


def test_formats_are_spelled_as_they_are_read():
    for text in ("8:5/8:7", "16:-3/2:0"):
        assert str(formats(text)) == text


@given(st.floats(-(2.0**100), 2.0**100, width=32), st.integers(2, 32), st.integers(-20, 20))
def test_quantised_numbers_are_the_nearest_halves_to_even(value, bits, fraction):
    from fractions import Fraction

    integer = int(FixedPoint(bits, fraction).quantized(np.array([value], np.float32))[0])
    exact = Fraction(value) * Fraction(2) ** fraction
    low, high = -(2 ** (bits - 1)), 2 ** (bits - 1) - 1
    assert integer == min(max(round(exact), low), high)  # Python rounds halves to even


def test_infinity_saturates_and_nan_is_refused():
    numbers = FixedPoint(8, 3)
    assert numbers.quantized(np.array([np.inf, -np.inf])).tolist() == [127, -128]
    with pytest.raises(InputError, match="NaN"):
        numbers.quantized(np.array([np.nan]))
