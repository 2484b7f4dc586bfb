"""Networks on the processor and on a card, as `tracer compare` told there."""

from tests.card.compare import NETWORKS


def test_values_differ_by_no_more_than_the_rounding_of_tf32(card):
    result = card("compare")
    compared = {name: result.get(name, {}).get("values", {}) for name in NETWORKS}
    compared = {name: values for name, values in compared.items() if "numbers" in values}
    assert compared
    for name, values in compared.items():
        (numbers,) = values["numbers"]
        assert values["passed"], (name, numbers["first_divergence"])
        differences = [row["max_share"] for row in numbers["outputs"]]
        assert all(0 <= each < 0.05 for each in differences), (name, differences)


def test_layers_have_the_time_of_the_card_and_it_is_below_that_of_whole_runs(card):
    result = card("compare")
    timed = [result[name]["times"] for name in NETWORKS
             if "layers" in result.get(name, {}).get("times", {})]  # fmt: skip
    assert timed
    for times in timed:
        on_card = sum(row["time_us_b"] or 0 for row in times["layers"])
        assert 0 < on_card < 1.05 * times["totals"][1]["time_us"]
        assert any("the time of their kernels on the card" in note for note in times["notes"])
