"""Names in charts: short, with both ends, and different where the names are."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.analyzers.views.text import MOST_CHARACTERS, short_names, without_prefix

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


@pytest.mark.parametrize("most", [24, 28, 40])
def test_what_distinguishes_names_is_shown(most):
    names = [f"/model/encoder/layers.{n}/self_attention/query/MatMul" for n in (1, 10, 11)]
    for own, shown in zip(("1", "10", "11"), short_names(names, most), strict=True):
        assert f"layers.{own}" in shown
        assert shown.endswith("/MatMul")


def test_of_two_differences_both_are_shown():
    pairs = [(n, part) for n in (3, 13) for part in ("query", "key")]
    names = [f"/model/encoder/layers.{n}/self_attention/{part}/MatMul" for n, part in pairs]
    for (n, part), shown in zip(pairs, short_names(names, 22), strict=True):
        assert f".{n}" in shown
        assert f"/{part}" in shown


def test_names_are_cut_where_they_tell_least():
    fused = ["Conv+BatchNormalization+Relu", "Conv+BatchNormalization+Add+Relu"]
    assert short_names(fused, 16, "end") == ["Conv…+Relu", "Conv…+Add+Relu"]
    assert short_names(fused[:1], 16, "end") == ["Conv+BatchNorma…"]
    assert short_names(["a/long/folder/net.py:36"], 12, "begin") == ["…r/net.py:36"]


def test_folders_that_most_names_share_are_left_out_and_told():
    names = [f"/net/block.{n}/attention/MatMul" for n in range(3)]
    shown, prefix = without_prefix([*names, "If_0"])
    assert prefix == "/net/block."
    assert shown == ["…0/attention/MatMul", "…1/attention/MatMul", "…2/attention/MatMul", "If_0"]
    assert without_prefix([*names[:2], "a", "b", "c"]) == ([*names[:2], "a", "b", "c"], "")


@given(st.lists(NAMES, max_size=30))
def test_what_is_left_of_a_name_completes_it(names):
    shown, prefix = without_prefix(names)
    for name, left in zip(names, shown, strict=True):
        assert left == name or (prefix and prefix + left.removeprefix("…") == name)


@given(st.lists(NAMES, max_size=30), st.integers(6, 40))
def test_names_fit_into_any_width(names, most):
    shown = short_names(names, most)
    assert all(len(name) <= most for name in shown)
    assert len(set(shown)) == len(set(names))
