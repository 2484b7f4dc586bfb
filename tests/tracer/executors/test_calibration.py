"""The fit of the profiler's overhead, on synthetic figures, and its cache."""

import os

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tracer.executors.onnxruntime import calibration
from tracer.executors.onnxruntime.calibration import Bias
from tracer.graph.tensor_type import TensorType
from tracer.records.trace import Kernel
from tracer.support import files

SIZES = [kind.size for kind in calibration.CHAIN_KINDS]
parts = st.floats(0, 10)


def kernel(inputs, outputs, shape):
    kinds = [(TensorType("float32", shape),) * count for count in (inputs, outputs)]
    return Kernel("k", "Op", "", "cpu", None, "", (), (), (), *kinds, 1.0)


@given(parts, parts, parts)
def test_a_profiler_that_is_linear_is_recovered_and_leaves_nothing(fixed, tensor, dimension):
    added = np.array([fixed + tensor * t + dimension * d for t, d in SIZES])
    bias = calibration.fit(SIZES, added)
    assert [bias.fixed, bias.per_tensor, bias.per_dimension] == pytest.approx(
        [fixed, tensor, dimension], abs=1e-6
    )
    assert bias.error == pytest.approx(0, abs=1e-6)
    expected = fixed + 3 * tensor + 12 * dimension
    assert bias.of(kernel(2, 1, (1, 2, 3, 4))) == pytest.approx(expected, abs=1e-5)


def test_what_the_line_misses_is_its_error():
    random = np.random.default_rng(0)
    errors = []
    for _ in range(300):
        added = np.array([3 + 0.2 * t for t, _ in SIZES]) + random.normal(0, 0.5, len(SIZES))
        errors.append(calibration.fit(SIZES, added).error ** 2)
    assert np.sqrt(np.mean(errors)) == pytest.approx(0.5, rel=0.1)


def test_a_bias_is_never_negative_and_a_shape_may_be_unknown():
    assert Bias(-5.0, 0.1).of(kernel(1, 1, (2,))) == 0
    assert Bias(1.0, 0.0, 1.0).of(kernel(1, 1, None)) == 1


def test_chains_are_what_their_kind_says():
    import onnx

    for kind in calibration.CHAIN_KINDS:
        proto = calibration._chain(kind)
        onnx.checker.check_model(proto, full_check=True)
        for node in proto.graph.node:
            assert (len(node.input), len(node.output)) == (kind.inputs, kind.outputs)


@pytest.fixture
def counted(monkeypatch, tmp_path):
    """Measures that are counted, in a cache of the test's own."""
    measured = []

    def excess(threads):
        measured.append(threads)
        return SIZES, np.linspace(2, 4, len(SIZES))

    monkeypatch.setattr(files, "cache_folder", lambda: tmp_path / "tracer")
    monkeypatch.setattr(calibration, "measure_excess", excess)
    calibration.measure.cache_clear()
    yield measured, tmp_path / "tracer"
    calibration.measure.cache_clear()


@pytest.mark.nightly
def test_a_bias_is_measured_once_for_each_number_of_threads(counted):
    measured, folder = counted
    for threads in (1, 1, 2):
        first = calibration.measure(threads)
        calibration.measure.cache_clear()
        assert calibration.measure(threads) == first
        calibration.measure.cache_clear()
    assert measured == [1, 2]
    assert len(list(folder.iterdir())) == 2


@pytest.mark.one_in(2)
@pytest.mark.parametrize("content", ["{", '{"fixed":1e300,"per_tensor":1e300}'])
def test_a_file_that_says_nothing_is_measured_anew(counted, content):
    measured, folder = counted
    calibration.measure(1)
    next(folder.iterdir()).write_text(content)
    calibration.measure.cache_clear()
    calibration.measure(1)
    assert measured == [1, 1]


@pytest.mark.nightly
@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX")
def test_a_pipe_in_its_place_is_not_waited_for(counted):
    measured, folder = counted
    calibration.measure(1)
    (file,) = folder.iterdir()
    file.unlink()
    os.mkfifo(file)
    calibration.measure.cache_clear()
    calibration.measure(1)
    assert measured == [1, 1]
    assert file.is_fifo()


def test_without_a_folder_to_keep_it_in_it_is_measured(counted, monkeypatch, tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    monkeypatch.setattr(files, "cache_folder", lambda: blocked / "tracer")
    assert calibration.measure(1).fixed > 0
