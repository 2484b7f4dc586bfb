"""Names in charts: short, with both ends, and different where the names are."""

from hypothesis import given
from hypothesis import strategies as st

from analyzers.views.short_names import MOST_CHARACTERS, short_names

_PARTS = st.sampled_from(["/encoder", "/layer.10", "/layer.11", "/attention", "/query", "#2", "x"])
NAMES = st.lists(_PARTS, min_size=1, max_size=12).map("".join)


@given(st.lists(NAMES | st.text(max_size=60), max_size=30))
def test_different_names_stay_different_and_are_short(names):
    shown = short_names(names)
    assert len(set(shown)) == len(set(names))
    pairs = set(zip(names, shown, strict=True))
    assert len(pairs) == len(set(names))
    assert all(len(name) <= MOST_CHARACTERS for name in shown)


@given(NAMES)
def test_a_name_alone_keeps_both_ends(name):
    (shown,) = short_names([name])
    begin, _, end = shown.partition("…")
    assert name.startswith(begin)
    assert name.endswith(end)
    assert len(name) > MOST_CHARACTERS or shown == name


def test_what_distinguishes_names_is_shown():
    names = [f"/model/encoder/layers.{n}/self_attention/query/MatMul" for n in (3, 14)]
    for name, own, shown in zip(names, ("3", "14"), short_names(names), strict=True):
        begin, middle, end = shown.split("…")
        assert middle == own
        assert name.startswith(begin)
        assert name.endswith(end)
        assert min(len(begin), len(end)) >= 8
