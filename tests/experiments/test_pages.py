"""Every experiment, so small that its times mean nothing: what is not time must hold."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from experiments import _images, accumulators, batches, family, layers, training
from experiments.__main__ import EXPERIMENTS
from experiments._page import Page
from tracer.graph import loading

pytestmark = pytest.mark.needs("torch", "chainer", "matplotlib", "tensorboardX", "safetensors")


@pytest.fixture
def images(tmp_path: Path) -> str:
    """Forty grey images in ten classes that differ in where they are bright."""
    rng = np.random.default_rng(3)
    y = np.arange(40) % 10
    x = rng.integers(0, 60, (40, 8, 8), np.uint8)
    x[np.arange(40), y % 8] += 180
    path = tmp_path / "images.npz"
    np.savez(path, x=x, y=y)
    return str(path)


def rows(page: Page, heading: str) -> list[list[str]]:
    """The cells of the first table below a heading."""
    below = page.text.partition(f"## {heading}")[2]
    table = re.search(r"(?:^\|.*\n)+", below, re.MULTILINE)
    assert table is not None
    lines = table.group().splitlines()[2:]
    return [cells(line) for line in lines]


def cells(line: str) -> list[str]:
    """The cells of a row of a table."""
    return [cell.strip() for cell in line.strip("|").split("|")]


def check_pictures(page: Page) -> None:
    assert set(re.findall(r"\]\((.+?\.png)\)", page.text)) == set(page.pictures)
    assert all(data.startswith(b"\x89PNG") for data in page.pictures.values())


@pytest.mark.nightly
def test_resnet20_has_its_66_layers_and_the_same_numbers_in_every_executor():
    page = layers.make(runs=3, sessions=2, threads=1)
    check_pictures(page)
    calls = {row[0]: int(row[1].replace(",", "")) for row in rows(page, "By type")}
    assert calls == {name: 3 * of // 10_000 for name, (of, _) in layers.ORIGINAL.items()}
    result = rows(page, "Layer by layer")
    assert [row[0].partition("_")[0] for row in result] == [str(n) for n in range(66)]
    assert (result[0][0], result[65][0]) == ("0_Convolution2D", "65_Linear")
    assert [row[3:] for row in rows(page, "Agreement of values")] == [["66", "0"]] * 3


@pytest.mark.nightly
def test_the_family_calls_as_many_convolutions_as_the_original():
    names = ("plain18", "plain34", "bottleneck18")
    page = family.make(names, batch=2, size=32, sessions=2, runs=1, threads=1)
    check_pictures(page)
    result = rows(page, "Forward")
    assert [row[0] for row in result] == list(names)
    assert [int(row[1]) for row in result[:2]] == [20, 36]
    assert [row[-2] for row in result] == ["74.4%", "83.8%", "40 to 45%"]
    calls = {row[0]: row[1:] for row in rows(page, "Calls")}
    assert calls["plain18"] == ["20", "20", "16", "16", "28", "28"]
    assert calls["plain34"] == ["36", "36", "32", "32", "52", "52"]
    assert calls["bottleneck18"] == ["28", "", "24", "24", "36", ""]
    table = rows(page, "Forward and backward")
    assert table[0] == ["convolutions in the backward pass", "28", "155"]
    assert [row[0] for row in table] == list(family.STEP)
    assert all(0 < float(row[1].rstrip("%")) < 100 for row in table[3:])
    operators = [cells(line) for line in page.text.splitlines() if line.startswith("| `")]
    assert len(operators) == family.TOP
    assert any("backward" in row[0] for row in operators)
    assert all(0 < float(row[3].rstrip("%")) <= 100 for row in operators)


@pytest.mark.nightly
def test_batch_sizes_have_operators_with_memory_and_a_training_has_curves(images):
    page = batches.make([1, 2], runs=2, sessions=2, epochs=1, data=images, threads=1)
    check_pictures(page)
    memory = [
        {row[0]: float(row[5].replace(",", "")) for row in rows(page, f"Operators at batch {size}")}
        for size in (1, 2)
    ]
    assert memory[0]["`relu`"] > 0
    assert memory[1]["`relu`"] == pytest.approx(2 * memory[0]["`relu`"], rel=0.1)
    assert [row[1] for row in rows(page, "Time against work")] == ["1", "2"] * 2
    assert len(rows(page, "Training")) == 1
    loader = rows(page, "Data loader")
    assert [row[0] for row in loader] == ["1", "2"]
    assert all(float(row[1].replace(",", "")) > 0 for row in loader)
    kernels = page.text.partition("Their kernels")[2].partition("</details>")[0]
    totals = [float(cells(line)[3]) for line in kernels.splitlines() if line.startswith("| `")]
    assert len(totals) == batches.TOP
    assert totals == sorted(totals, reverse=True)


@pytest.mark.nightly
def test_a_resumed_training_is_the_same_bit_for_bit(images):
    page = training.make(epochs=2, batch=20, lr=1e-3, data=images, images=None, threads=1)
    check_pictures(page)
    same = re.search(r"(\d+) of (\d+) arrays", page.text)
    assert same is not None
    assert same[1] == same[2]
    assert "losses of its epochs are equal" in page.text
    assert [row[0] for row in rows(page, "Epochs")] == ["1", "2"]
    assert all(row[3].count("%") == 5 for row in rows(page, "Predictions"))


def test_lenet_has_the_published_operations_and_energies():
    model = loading.load(accumulators.MODEL)
    work = accumulators.work_of(model)
    assert accumulators.counted(model, work) == accumulators.OPERATIONS
    text = accumulators.energies(work)
    assert "18 bits 223,315,236 (published: 223,315,236)" in text
    assert "17 bits 199,829,594 (published: 199,829,594)" in text


@pytest.mark.nightly
def test_narrower_accumulators_overflow_more_and_cost_less():
    page = accumulators.make(accumulators.MODEL, "digits", 12, [24, 16], budget=0.01)
    check_pictures(page)
    wide, narrow = rows(page, "One width for all layers")
    assert wide[2] == "0.00%"
    assert wide[3] == "0 of 12"
    assert float(narrow[2].rstrip("%")) > 0
    assert narrow[3] == "12 of 12"
    worst = rows(page, "Which images overflow")
    assert len(worst) == min(_images.WORST, int(re.search(r"(\d+) of 12 images", page.text)[1]))
    original = {row[0][0]: row[4:] for row in rows(page, "Which widths to build")}
    assert original["A"] == ["18", "53.48%", "223,315,236"]
    assert original["B"] == ["17", "52.02%", "199,829,594"]
    assert original["C"] == ["18, 16, 17, 16, 17", "53.47%", "204,032,186"]
    energy = [int(row[4].replace(",", "")) for row in (wide, narrow)]
    assert energy[0] > energy[1]


def test_every_page_that_is_published_is_made_by_an_experiment():
    published = {path.stem for path in Path("docs/experiments").glob("[0-9]-*.md")}
    assert published == {f"{n}-{name}" for n, name in enumerate(EXPERIMENTS, 1)}


def test_a_mistake_is_told_in_one_line():
    command = [sys.executable, "-m", "experiments.training", "--data", "nothing", "--epochs", "1"]
    output = subprocess.run(command, capture_output=True, text=True)
    assert output.returncode == 1
    assert output.stderr.startswith("error: no data set 'nothing'")
    assert "Traceback" not in output.stderr
