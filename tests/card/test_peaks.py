"""Peaks of a card and rooflines under them, as measured there."""

import pytest

from tests.card.peaks import NETWORKS, NOMINAL


def test_peaks_lie_between_a_third_of_the_makers_figure_and_the_figure(card):
    result = card("peaks")
    if result["card"] not in NOMINAL:
        pytest.skip(f"the maker's figures of {result['card']} are not in the part")
    for kind, peak in result["peaks"].items():
        assert 0.33 < peak["of_nominal"] < 1.1, kind
    peaks = {kind: peak["rate"] for kind, peak in result["peaks"].items()}
    assert peaks["float32"] < peaks["tf32"] < peaks["bfloat16"]


def test_no_product_is_above_its_roof_but_convolutions_that_leave_work_out(card):
    result = card("peaks")
    measured = [name for name in NETWORKS if "rows" in result.get(name, {})]
    assert measured
    for name in measured:
        for row in result[name]["rows"]:
            if row["bound"] in ("compute", "memory"):
                assert 0 < row["roof_fraction"] <= 1.05, row
            if row["bound"] == "fewer ops":
                assert "conv" in row["op_type"], row
        products = [row for row in result[name]["rows"] if (row["macs"] or 0) > 0]
        assert any(row["roof_fraction"] for row in products), name
