"""Values of all batches that fill memory go to files, and change no bit of the result."""

import os
import tracemalloc

import numpy as np
import onnx
import pytest

import tracer
from tests.nets import Builder
from tracer.containment import memory
from tracer.whatif import reuse

SAMPLES, CHANNELS, SIZE = 64, 16, 64
MAPS = SAMPLES * CHANNELS * SIZE**2 * 4
"""Bytes of what a layer returns for all samples."""


@pytest.fixture
def narrow(tmp_path):
    """Narrows a network with large maps to 16 bits; returns the bytes of the model."""
    net = Builder("maps", x=("N", 1, SIZE, SIZE))
    net.node("Conv", "a", "x", net.weight("aw", CHANNELS, 1, 3, 3), pads=[1] * 4)
    net.node("Relu", "b", "a")
    net.node("Conv", "c", "b", net.weight("cw", CHANNELS, CHANNELS, 3, 3), pads=[1] * 4)
    net.node("Add", "d", "b", "c")  # what it adds passes a layer
    net.node("Conv", "y", "d", net.weight("yw", 1, CHANNELS, 3, 3))
    onnx.save(net.model("y"), tmp_path / "maps.onnx")
    x = np.random.default_rng(5).normal(0, 1, (SAMPLES, 1, SIZE, SIZE)).astype(np.float32)
    np.savez(tmp_path / "data.npz", x=x)
    given = (tmp_path / "maps.onnx", tmp_path / "data.npz")
    tracer.quantize(*given, output=tmp_path / "q.onnx", in_process=True)

    def narrowed():
        result = tracer.narrow(
            tmp_path / "q.onnx", 16, tmp_path / "data.npz", batch=4, test_limit=8, metric="noise",
            budget=100, in_process=True,
        )  # fmt: skip
        return result.proto.SerializeToString()

    return narrowed


def test_a_network_with_large_maps_is_narrowed_in_less_memory(narrow, monkeypatch):
    usual = narrow()
    monkeypatch.setattr(memory, "room_bytes", lambda: 2 << 20)
    tracemalloc.start()
    same = narrow()
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert same == usual
    assert most < 3 * MAPS  # two sides, what a node reads and returns in each: it was 8


def test_arrays_beyond_the_room_are_in_few_files_and_views_of_them_are_not_copied(monkeypatch):
    resource = pytest.importorskip("resource")
    monkeypatch.setattr(memory, "room_bytes", lambda: 0)
    room, arrays = reuse.ArrayRoom(), [np.full((3, 512), n, np.float32) for n in range(200)]
    limits = resource.getrlimit(resource.RLIMIT_NOFILE)
    free = os.dup(0)
    os.close(free)
    resource.setrlimit(resource.RLIMIT_NOFILE, (free + 20, limits[1]))
    try:
        kept = [room.keep([array])[0] for array in arrays]
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, limits)
    assert all(np.array_equal(a, b) and a is not b for a, b in zip(kept, arrays, strict=True))
    view = kept[1][1:].T
    assert room.keep([view])[0] is view
