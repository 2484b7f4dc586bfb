"""Compiled tasks: every block once, whoever computes it; results that threads do not change."""

import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.interpreter.models import single
from tracer.interpreter.compiled_code import NO_MEMORY, loaded, task
from tracer.interpreter.interpreter import Interpreter
from tracer.interpreter.kernels.argument_types import free, new_doubles
from tracer.interpreter.numeric import compiled, parallel, tensors

_THREADS = st.integers(1, 5)


@settings(deadline=None)
@given(_THREADS, st.integers(1, 400_000))
def test_every_element_is_computed_however_many_threads_there_are(threads, size):
    x = np.arange(size, dtype=np.float32).reshape(1, size) - size // 2
    with parallel.threads(threads):
        np.testing.assert_array_equal(compiled.relu(x), np.maximum(x, 0))


def test_leaders_at_the_same_time_do_not_disturb_each_other():
    x = np.random.default_rng(0).standard_normal((8, 1 << 16)).astype(np.float32)
    expected = np.maximum(x, 0)

    def lead(_):
        with parallel.threads(3):
            return all((compiled.relu(x) == expected).all() for _ in range(50))

    with ThreadPoolExecutor(4) as pool:
        assert all(pool.map(lead, range(8)))


def test_helpers_that_fell_asleep_are_woken():
    x = np.random.default_rng(0).standard_normal((8, 1 << 16)).astype(np.float32)
    with parallel.threads(2):
        for _ in range(20):
            np.testing.assert_array_equal(compiled.relu(x), np.maximum(x, 0))
            time.sleep(0.002)


@pytest.mark.parametrize("op_type", ["Conv", "MatMul"])
def test_the_same_bits_on_any_number_of_threads(op_type):
    random = np.random.default_rng(0)
    shapes = {"Conv": ((2, 12, 40, 41), (20, 6, 3, 3)), "MatMul": ((130, 700), (700, 333))}[op_type]
    feeds = {
        n: random.standard_normal(s).astype(np.float32) for n, s in zip("xw", shapes, strict=True)
    }
    model = single(op_type, feeds, **({"group": 2} if op_type == "Conv" else {}))
    first, *others = (Interpreter(model, threads=n).run(None, feeds)[0] for n in (1, 2, 3, 7))
    for other in others:
        np.testing.assert_array_equal(first, other)


@pytest.mark.parametrize("array", [np.zeros(4), np.zeros((4, 4), np.float32).T])
def test_an_array_that_compiled_code_would_misread_is_refused(array):
    with pytest.raises(TypeError, match="contiguous array of float32"):
        parallel.share(loaded("elementwise").relu, 1, (array, array), (4,))


@task(fits=lambda count, each: True)
def _failing(words, block):
    if block == words[0]:
        free(new_doubles(1 << 60))


@pytest.mark.parametrize("threads", [1, 3])
@pytest.mark.parametrize("failing", [0, 7])
def test_a_block_without_memory_is_an_error_and_the_next_task_is_none(threads, failing):
    with parallel.threads(threads):
        with pytest.raises(MemoryError, match=NO_MEMORY):
            parallel.share(_failing, 8, (), (failing,))
        parallel.share(_failing, 8, (), (8,))


def test_a_result_outlives_the_runs_after_it():
    """Buffers go from run to run, but not while the caller holds what lies in them."""
    x = np.random.default_rng(0).standard_normal((4, 1 << 16)).astype(np.float32)
    interpreter = Interpreter(single("Relu", {"x": x}))
    first = interpreter.run(None, {"x": x})[0]
    second = interpreter.run(None, {"x": -x})[0]
    np.testing.assert_array_equal(first, np.maximum(x, 0))
    np.testing.assert_array_equal(second, np.maximum(-x, 0))


def test_the_pool_of_a_run_is_the_next_ones():
    idle = []
    with tensors.pooled(idle):
        place = tensors.empty((1 << 16,), np.float32).__array_interface__["data"][0]
    with tensors.pooled(idle):
        assert tensors.empty((1 << 16,), np.float32).__array_interface__["data"][0] == place
