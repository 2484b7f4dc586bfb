"""Random weights come from the seed, and the random numbers of the program are left alone."""

import random

import numpy as np
import onnx
import pytest
from onnx import numpy_helper

import tracer
from tracer.cli import main
from tracer.exporters.records import ExportOptions
from tracer.exporters.subject import load_source, seeded

TORCH = """
import torch

class Net(torch.nn.Linear):
    def __init__(self):
        super().__init__(3, 4)

made = Net()

def fixed():
    torch.manual_seed(99)
    return Net()
"""
CHAINER = """
import chainer.links as L

class Net(L.Linear):
    def __init__(self):
        super().__init__(3, 4)
"""
SOURCES = {"torch": TORCH, "chainer": CHAINER}


@pytest.fixture(params=SOURCES)
def net(request, tmp_path):
    pytest.importorskip("torch")
    file = tmp_path / f"{request.param}_net.py"
    file.write_text(SOURCES[request.param])
    return f"{file}:Net"


def exported(source, path, seed):
    tracer.export(source, path, input_shape=(2, 3), options=ExportOptions(seed=seed))
    return path.read_bytes()


@pytest.mark.one_in(2)
def test_two_exports_of_random_weights_are_equal_and_another_seed_differs(net, tmp_path):
    random.seed(1)
    np.random.seed(1)
    first = exported(net, tmp_path / "a.onnx", 5)
    np.random.seed(2)
    assert exported(net, tmp_path / "b.onnx", 5) == first
    assert exported(net, tmp_path / "c.onnx", 6) != first


def test_the_generators_of_the_program_go_on_as_if_nothing_had_happened(net, tmp_path):
    torch = pytest.importorskip("torch")

    def numbers():
        return random.random(), np.random.random(), torch.rand(1).item()

    def sown():
        random.seed(7)
        np.random.seed(7)
        torch.manual_seed(7)

    sown()
    expected = [numbers() for _ in range(2)]
    sown()
    assert numbers() == expected[0]
    exported(net, tmp_path / "a.onnx", 5)
    assert numbers() == expected[1]


@pytest.mark.nightly
def test_the_command_draws_what_torch_draws_from_the_seed(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(TORCH)
    for drawn, name in enumerate(("made", "Net")):  # the file makes one, the command the next
        arguments = ["export", f"{tmp_path / 'net.py'}:{name}", "--input-shape", "2,3"]
        assert main([*arguments, "--seed", "11", "-o", str(tmp_path / f"{name}.onnx")]) == 0
        with torch.random.fork_rng():
            torch.manual_seed(11)
            linears = [torch.nn.Linear(3, 4) for _ in range(drawn + 1)]
            expected = linears[-1].weight.detach().numpy()
        weights = [
            numpy_helper.to_array(each)
            for each in onnx.load(tmp_path / f"{name}.onnx").graph.initializer
        ]
        assert any(np.array_equal(w, e) for w in weights for e in (expected, expected.T))


def test_a_seed_of_the_models_own_counts(tmp_path):
    torch = pytest.importorskip("torch")
    (tmp_path / "net.py").write_text(TORCH)
    one, other = (load_source(f"{tmp_path / 'net.py'}:fixed", seed=seed) for seed in (1, 2))
    assert torch.equal(one.weight, other.weight)


def test_without_a_seed_nothing_is_changed():
    np.random.seed(3)
    expected = np.random.random(2)
    np.random.seed(3)
    with seeded(None):
        assert np.random.random() == expected[0]
    assert np.random.random() == expected[1]


def test_the_generators_are_restored_after_an_error():
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    with pytest.raises(ZeroDivisionError), seeded(4):
        np.random.random()
        raise ZeroDivisionError
    assert np.random.random() == expected
