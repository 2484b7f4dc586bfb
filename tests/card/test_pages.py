"""The columns of a card on the pages of two experiments, and what was measured for them."""

import json
from pathlib import Path

import pytest

from experiments import _card
from experiments._card import with_columns, with_section
from tests.card import pages
from tracer.errors import InputError

PAGES = Path("docs/experiments")
TEXT = """# Page

## First

| name | ms |
| --- | ---: |
| `a` | 1 |
| b | 2 |

## Beyond the original

- Last.
"""


def test_columns_of_a_card_stand_behind_those_that_are_there_and_replace_older_ones():
    once = with_columns(TEXT, "## First", ["ms"], {"a": ["7"], "c": ["8"]})
    assert "| name | ms | GPU: ms |\n| --- | ---: | ---: |\n| `a` | 1 | 7 |\n| b | 2 |  |" in once
    assert "| `c` |  | 8 |" in once
    again = with_columns(once, "## First", ["s", "share"], {"b": ["3", "4"]})
    assert "| `a` | 1 |  |  |\n| b | 2 | 3 | 4 |\n\n" in again and "`c`" not in again
    assert again.partition("## Beyond")[2] == TEXT.partition("## Beyond")[2]


def test_the_section_of_a_card_replaces_an_older_one():
    once = with_section(TEXT, ["One."])
    assert once.index("## First") < once.index("## On a card\n\nOne.") < once.index("## Beyond")
    assert with_section(with_section(TEXT, ["Two."]), ["One."]) == once


def test_a_file_without_pages_is_refused(tmp_path):
    for content in ("", "{}", '{"parts": {"machine": {"error": "none"}}}'):
        (tmp_path / "card.json").write_text(content)
        with pytest.raises(InputError, match=r"holds no pages of a card"):
            _card.measured(tmp_path / "card.json")


def made_up(names):
    """What the part returns for these networks, with round numbers."""
    kernel = {"op_type": "gemm", "time_us": 9.0, "time_share": 0.5, "calls": 3.0}
    row = {"op_type": "conv2d", "time_us": 20.0, "time_share": 0.8, "calls": 2.0}
    network = {
        "forward_us": 3000.0, "forward_rows_us": 2000.0, "convolution_share": 0.5,
        "step_us": 9000.0, "step_rows_us": 6000.0, "backward_share": 0.6,
        "backward_convolutions": 20.0, "backward_convolution_share": 0.4, "kernels": [kernel],
    }  # fmt: skip
    mnist = {str(batch): {"wall_us": 100.0, "operators": [row]} for batch in pages.BATCHES}
    networks = {name: network | {"forward_rows_us": 2000.0 + at} for at, name in enumerate(names)}
    return {"mnist": mnist, "family": {"batch": 32, "size": 224, "networks": networks}}


@pytest.mark.needs("torch", "matplotlib")
def test_pages_keep_the_figures_of_the_processor():
    from experiments import batches, family

    machine = {"card": {"name": "Card X", "driver_version": "1.2"}, "torch": {"cuda": "13.0"}}
    names = pages.networks()
    assert set(names) == set(family.ORIGINAL)
    for module in (batches, family):
        before = (PAGES / f"{module.PAGE}.md").read_text("utf-8")
        page = module.with_card(before, machine, made_up(names))
        assert module.with_card(page, machine, made_up(names)) == page
        assert "| card | Card X |" in page and "| CUDA | 13.0 |" in page
        of_processor = before.partition("## On a card")[0].splitlines()
        kept = ["|".join(line.split("|")[:7]) for line in of_processor if line.startswith("| `")]
        assert kept and all(cells in page for cells in kept)
    assert "| large152 | 155 |" in page and "| 3.00 | 2.00 | 50.0% | 1.00 | 9.0 | 60.0% |" in page
    assert "| ms of the backward pass | 1,845 | 9,469 | 3.6 |" in page
    assert "| and of the wall | 2.0% | 65% | 40.0% |" in page
    text = batches.with_card((PAGES / "3-batches.md").read_text("utf-8"), machine, made_up(names))
    assert "| 300.5 | 0.2000 | 80.0% | 10.0 |" in text  # 20 µs for each of 10,000 images


def test_the_card_measured_every_network(card):
    result = card("pages")
    assert set(result["mnist"]) == {str(batch) for batch in pages.BATCHES}
    for run in result["mnist"].values():
        operators = {row["op_type"]: row["time_us"] for row in run["operators"]}
        assert operators["conv2d"] > 0 and sum(operators.values()) <= 1.05 * run["wall_us"]
    networks = result["family"]["networks"]
    assert {"plain18", "large152"} <= set(networks)
    for name, row in networks.items():
        assert 0 < row["convolution_share"] < 1 and 0 < row["backward_share"] < 1, name
        assert row["step_rows_us"] > row["forward_rows_us"], name
    deeper = ("plain18", "plain34", "plain101", "plain152")  # plain50 has the blocks of plain34
    times = [networks[name]["forward_rows_us"] for name in deeper if name in networks]
    assert times == sorted(times)


def test_json_of_the_part_is_what_the_pages_read(card):
    assert json.loads(json.dumps(card("pages")))["family"]["batch"] == 32
