"""The pictures of sums in the documentation are true."""

import pytest

from tests.accumulators.nodes import saturated

pytest.importorskip("matplotlib")


def test_the_lanes_that_are_drawn_are_the_sums_in_8_bits(tmp_path):
    from tests.docs import sum_pictures

    before, after = sum_pictures.lanes(sum_pictures.PRODUCTS, sum_pictures.LIMIT)
    for count, (out, lane) in enumerate(zip(before, after, strict=True), 1):
        products = list(sum_pictures.PRODUCTS[:count])
        assert lane - 0.5 == saturated(products, 8)
        assert (out != lane) == (
            saturated(products, 8) != saturated(products[:-1], 8) + products[-1]
        )
    assert (before != after).sum() == 2  # one at each end
    sum_pictures.main([str(tmp_path)])
    for name in ("narrow-sum.png", "narrow-tile.png"):
        assert (tmp_path / name).read_bytes()[:4] == b"\x89PNG"
