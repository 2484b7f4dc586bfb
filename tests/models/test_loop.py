"""What is learned from at once, and what stops a training before or while it runs."""

from __future__ import annotations

import sys
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from models.training import loop, session
from models.training.folder import RunFolder
from tracer.errors import TracerError, UsageError

pytestmark = pytest.mark.needs("torch")


def silent(done: int, total: int, what: str) -> None:
    pass


def asked(family, data, **more):
    return {"family": family, "framework": "torch", "data": str(data), "batch": 12, **more}


class Stub:
    """Learns as it is told, for what no real network does on demand."""

    def __init__(self, learned: float, judged: float) -> None:
        self.learned, self.judged, self.seen = learned, judged, []

    def step(self, x, y):
        self.seen.append(len(y))
        return self.learned, 0

    def score(self, x, y):
        return self.judged, 0


@pytest.mark.parametrize("judged", [float("nan"), float("inf")])
def test_a_run_that_diverges_on_the_test_images_alone_stops_too(judged, tmp_path, tiny_data):
    run = session.start(asked("lenet", tiny_data), RunFolder(tmp_path), Path())
    with pytest.raises(TracerError, match=r"the validation loss of epoch 1 is (nan|inf)"):
        list(loop.train(Stub(1.0, judged), run.dataset, run.settings, 0, silent))


@given(st.integers(1, 200), st.integers(1, 50))
def test_an_epoch_is_cut_into_batches_of_which_none_is_a_single_image(count, size):
    cut = loop.batches(count, size)
    places = np.arange(count)
    assert np.concatenate([places[one] for one in cut]).tolist() == places.tolist()
    sizes = [one.stop - one.start for one in cut]
    assert set(sizes[:-1]) <= {size}
    assert sizes[-1] <= size + 1
    assert 1 not in sizes or size == 1 or count == 1


@pytest.mark.nightly
def test_a_network_of_single_values_learns_although_an_image_is_left_over(tmp_path, tiny_data):
    request = asked("resnet_imagenet", tiny_data, input_shape=(3, 32, 32), epochs=1, batch=31)
    run = session.start(request, RunFolder(tmp_path / "run"), Path())
    assert (len(run.dataset.train), len(list(run.epochs(silent)))) == (32, 1)


def test_batches_that_cannot_be_learned_from_are_refused_before_anything_is_written(
    tmp_path, tiny_data
):
    folder = RunFolder(tmp_path / "run")
    request = asked("resnet_imagenet", tiny_data, input_shape=(3, 32, 32), batch=1)
    with pytest.raises(UsageError, match=r"cannot learn from a batch of 1: .*larger --batch"):
        session.start(request, folder, Path())
    assert not folder.path.exists()


@pytest.mark.parametrize("package", ["torch", "safetensors", "onnxscript"])
def test_a_missing_package_is_told_before_the_training(package, tmp_path, tiny_data, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    folder = RunFolder(tmp_path / "run")
    with pytest.raises(UsageError, match=rf"needs '{package}'.*'tracer-onnx\[torch\]'"):
        session.start(asked("lenet", tiny_data), folder, Path())
    assert not folder.path.exists()
