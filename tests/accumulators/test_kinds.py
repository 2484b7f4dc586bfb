"""Kinds of accumulators in a policy: spellings, the registry of presets, and their messages."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.graphs import residual
from tracer.accumulators import hardware
from tracer.accumulators.hardware import Preset
from tracer.accumulators.spec import halves, kinds, parts
from tracer.accumulators.spec.accumulator import Accumulator, ByOperands, integer
from tracer.accumulators.spec.orders import Chunked
from tracer.accumulators.spec.policy import parse_policy
from tracer.errors import UsageError
from tracer.graph import loading

NODES = loading.from_proto(residual()).nodes  # c1 r1 c2 sum r2 pool flat y
WORDS = st.text("a1(),=", max_size=12)


def of(text, key="c1", like=None):
    return parse_policy(text, like=like).assign(NODES)[key].accumulator


def parsed(text):
    return kinds.parse(text, Accumulator(32)).accumulator


def test_commas_in_parentheses_do_not_split_entries():
    policy = parse_policy("c1=18(overflow=wrap,order=chunked(32)),Conv=16,*=x86-maddubs")
    rules = policy.assign(NODES)
    assert rules["c1"].accumulator == Accumulator(18, "wrap", Chunked(32))
    assert rules["c2"].accumulator == Accumulator(16)
    assert rules["y"].accumulator == hardware.presets()["x86-maddubs"].accumulator
    assert str(policy) == "c1=18(overflow=wrap,order=chunked(32)),Conv=16,*=x86-maddubs"


def test_a_value_in_parentheses_may_have_an_equals_sign_without_a_pattern():
    assert of("18(bias=last)") == Accumulator(18, bias="last")


@given(st.lists(WORDS.filter(lambda word: "," not in word), min_size=1))
def test_parts_without_parentheses_are_those_of_split(words):
    text = ",".join(word.replace("(", "").replace(")", "") for word in words)
    assert parts(text, ",") == text.split(",")


@given(WORDS)
def test_parts_put_the_text_together_again(text):
    assert ",".join(parts(text, ",")) == text
    before, after = halves(text, "=")
    assert text in (f"{before}={after}", after)


@pytest.mark.parametrize(
    ("text", "split"),
    [
        ("a(b,c),d", ["a(b,c)", "d"]),
        ("a((b,c),d),e", ["a((b,c),d)", "e"]),
        ("a(b,c", ["a(b", "c"]),  # parentheses that do not match are letters
        (")a,b(", [")a", "b("]),
        ("", [""]),
    ],
)
def test_parts_of_a_text(text, split):
    assert parts(text, ",") == split


PROPERTIES = st.tuples(
    st.integers(2, 63),
    st.sampled_from(["saturate", "symmetric", "wrap", "zero", "error"]),
    st.sampled_from(["sequential", "tree", "chunked(7)", "lanes(8)", "sorted", "maddubs(4)"]),
    st.sampled_from([None, 12]),
    st.sampled_from(["first", "last"]),
    st.sampled_from(["twos-complement", "magnitude"]),
    st.sampled_from(["before", "after"]),
    st.integers(0, 4),
    st.sampled_from(["half-even", "floor", "stochastic(7)"]),
)


@given(PROPERTIES)
def test_an_accumulator_is_spelled_as_it_is_read(properties):
    accumulator = Accumulator(*properties)
    assert parsed(str(accumulator)) == accumulator


def test_a_plain_width_is_a_number():
    assert str(Accumulator(18)) == "18"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("18(overflow=clip)", r"accumulator '18\(overflow=clip\)': overflow 'clip'"),
        ("18(wrap)", "'wrap' is not a property. It is one of overflow=…, order=…"),
        ("18(product_bits=x)", "product_bits = 'x'. It is a whole number"),
        ("x86-madubs", "'x86-madubs' is not an accumulator. Did you mean 'x86-maddubs'"),
        ("c1=18,*=nonsense", r"accumulator '\*=nonsense': .* is not an accumulator. It is one as"),
    ],
)
def test_what_is_possible_is_said(text, message):
    with pytest.raises(UsageError, match=message):
        parse_policy(text)


def test_options_fill_in_what_an_entry_leaves_out():
    like = Accumulator(32, "wrap", bias="last")
    assert of("18", like=like) == Accumulator(18, "wrap", bias="last")
    assert of("18(overflow=saturate)", like=like) == Accumulator(18, "saturate", bias="last")
    preset = hardware.presets()["x86-maddubs"].accumulator
    assert of("c1=x86-maddubs,*=18", like=like) == preset


def test_options_that_no_entry_takes_are_refused():
    with pytest.raises(UsageError, match="overflow zero: no accumulator of the policy takes it"):
        parse_policy("x86-maddubs", like=Accumulator(32, "zero"))


def test_a_file_names_presets_beside_widths(tmp_path):
    path = tmp_path / "p.toml"
    path.write_text('["c1"]\naccumulator = "x86-maddubs"\n\n["*"]\nbits = 18\n')
    assert of(str(path)) == hardware.presets()["x86-maddubs"].accumulator
    assert of(str(path), "y") == Accumulator(18)


@pytest.mark.parametrize(
    ("table", "message"),
    [
        ('accumulator = "x86-maddubs"\noverflow = "wrap"', "has no overflow to set"),
        ('accumulator = "x86-maddubs"\nbits = 18', "bits and accumulator together"),
        ('accumulator = "nonsense"', r'\["c1"\] of .*: \'nonsense\' is not an accumulator'),
        ("accumulator = 18", "accumulator = 18. It is a text"),
    ],
)
def test_an_invalid_table_is_named(table, message, tmp_path):
    (tmp_path / "p.toml").write_text(f"[c1]\n{table}\n")
    with pytest.raises(UsageError, match=message):
        parse_policy(str(tmp_path / "p.toml"))


def test_a_property_of_a_table_counts_for_its_accumulator(tmp_path):
    (tmp_path / "p.toml").write_text('[c1]\naccumulator = "18(bias=last)"\noverflow = "wrap"\n')
    assert of(str(tmp_path / "p.toml")) == Accumulator(18, "wrap", bias="last")


def test_a_device_may_have_an_accumulator_for_each_format():
    device = ByOperands("tc:test", {"int8": Accumulator(32), "int4": Accumulator(24)})
    assert device.of("int4") == Accumulator(24)
    with pytest.raises(UsageError, match=r"'tc:test' does not multiply .* fp16. It mult"):
        device.of("fp16")
    with pytest.raises(UsageError, match="'tc:test' does not add integers, and certificates take"):
        integer(device, "certificates")
    assert hash(device) == hash(ByOperands("tc:test", {}))


@pytest.mark.parametrize("preset", hardware.presets().values(), ids=lambda preset: preset.name)
def test_every_preset_is_read_by_its_name(preset: Preset):
    assert parsed(preset.name) == preset.accumulator
    alone = [p.accumulator for p in hardware.presets().values()].count(preset.accumulator) == 1
    assert hardware.spelling(preset.accumulator) == (
        preset.name if alone else str(parsed(preset.name))
    )
    assert preset.what.endswith(".") and preset.leaves_out.endswith(".")
    assert preset.source


def test_an_accumulator_of_no_preset_keeps_its_own_spelling():
    assert hardware.spelling(Accumulator(18, "wrap")) == "18(overflow=wrap)"
