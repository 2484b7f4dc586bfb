"""What the machine can do: measured when it must be, kept, and never slower than what was seen."""

import os
import time
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tracer import host
from tracer.host import measure
from tracer.records.environment import Environment, Peak, Peaks

PEAKS = Peaks(1, Peak(1e11, "a"), Peak(2e10, "b"), Peak(2e11, "c"))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(host, "_MOST_S", 0.0)
    monkeypatch.setattr(host, "_MOVING_S", 0.0)
    monkeypatch.setattr(host, "_LEAST_BYTES", 1 << 20)
    monkeypatch.setattr(host, "_last_level_cache", lambda: 0)


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_every_peak_is_measured_and_says_by_what(quick, threads):
    before = host.places(1)
    peaks = measure(threads)
    assert peaks.threads == threads
    assert peaks.float32.rate > 1e8
    assert peaks.memory.rate > 1e8
    assert "MatMul" in peaks.float32.by
    assert "1 MiB" in peaks.memory.by
    assert 0 < peaks.cpu_share <= 1.5
    assert peaks.load is not None
    assert host.places(1) == before  # the thread that measured may go where it might before


@pytest.mark.parametrize(("flags", "measured"), [(("avx2",), True), (("sve",), False)])
def test_int8_is_measured_where_there_is_an_instruction_for_it(quick, monkeypatch, flags, measured):
    monkeypatch.setattr(host.environment, "cpu_flags", lambda: flags)
    assert (measure(1).int8 is not None) is measured


def test_the_sum_is_the_one_that_its_bytes_are_counted_for():
    b, c = np.random.default_rng(0).normal(size=(2, 1000))
    a = np.empty_like(b)
    host._add_arrays(a, b, c)
    np.testing.assert_array_equal(a, b + c)


def test_memory_counts_where_all_threads_ran_undisturbed():
    alone = np.array([[0.0, 1.0, 3.0], [1.0, 3.0, 4.0], [30.0, 0.0, 20.0]])  # start, end, rate
    other = np.array([[0.2, 3.0], [2.0, 4.0], [5.0, 10.0]])
    rates = host._rates([alone, other])
    together = rates[:, rates.all(axis=0)].sum(axis=0)
    assert sorted(together) == [20.0 + 10.0, 20.0 + 10.0, 30.0 + 5.0]
    assert host._best_tenth(rates) == (pytest.approx(np.quantile(together, 0.9)), 1.0)
    assert host._best_tenth(rates[:, ~rates.all(axis=0)])[1] == 0.5  # never both at a time


@pytest.mark.parametrize(
    ("cache", "mib"), [(0, 64), (32 << 20, 64), (100 << 20, 200), (1 << 40, 512)]
)
def test_arrays_are_larger_than_the_last_cache(cache, mib):
    assert host.array_bytes(cache) == mib << 20


def test_peaks_are_measured_once_for_each_thread_count(tmp_path, monkeypatch):
    measured_threads, messages = [], []
    monkeypatch.setattr(
        host, "measure", lambda n: measured_threads.append(n) or replace(PEAKS, threads=n)
    )
    assert host.stored_peaks(1, tmp_path) is None
    for threads in (1, 2, 1, 2):
        assert host.peaks(threads, folder=tmp_path, announce=messages.append).threads == threads
    assert measured_threads == [1, 2]
    assert len(messages) == 4  # what is being done, and where it is kept
    assert host.stored_peaks(1, tmp_path) == PEAKS
    host.peaks(1, folder=tmp_path, anew=True)
    assert measured_threads == [1, 2, 1]


def test_a_busy_measurement_lowers_nothing_that_was_seen_before(tmp_path, monkeypatch):
    low = Peaks(1, Peak(9e10, "x"), Peak(3e10, "y"), None, cpu_share=0.4)
    peaks = []
    for measured in (PEAKS, low, replace(low, cpu_share=1.0)):
        monkeypatch.setattr(host, "measure", lambda n, peaks=measured: peaks)
        peaks.append(host.peaks(1, folder=tmp_path, anew=True))
    assert peaks[0] == PEAKS
    assert peaks[1] == replace(PEAKS, memory=low.memory)
    assert not peaks[1].is_busy
    assert peaks[2] == replace(low, cpu_share=1.0)  # measured alone, it is what there is


def test_other_versions_measure_anew(tmp_path, monkeypatch):
    before = host.peaks_file(1, tmp_path)
    monkeypatch.setattr(host, "_version", lambda package: "0")
    assert host.peaks_file(1, tmp_path) != before


@pytest.mark.parametrize("damage", [b"", b"{", b'{"threads": "many"}'])
def test_a_damaged_file_is_measured_over(tmp_path, damage, monkeypatch):
    monkeypatch.setattr(host, "measure", lambda n: PEAKS)
    host.peaks_file(1, tmp_path).write_bytes(damage)
    assert host.stored_peaks(1, tmp_path) is None
    assert host.peaks(1, folder=tmp_path) == host.stored_peaks(1, tmp_path) == PEAKS


def test_a_folder_that_cannot_be_written_costs_a_note_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(host, "measure", lambda n: PEAKS)
    (tmp_path / "file").write_text("")
    messages = []
    assert host.peaks(1, folder=tmp_path / "file", announce=messages.append) == PEAKS
    assert "cannot be written" in messages[-1]


def test_a_machine_that_is_busy_with_others_is_known_by_the_cpu_time_it_gives(monkeypatch):
    monkeypatch.setattr(host, "_MOST_S", 0.05)
    _, cpu_share = host.best(lambda: time.sleep(0.01), 1)  # what others take is a wait for us
    assert cpu_share < 0.5
    assert replace(PEAKS, cpu_share=cpu_share).is_busy
    assert not PEAKS.is_busy


def test_a_clock_that_is_late_gives_a_thread_no_more_than_a_try_took():
    assert host._cpu_of_try([0.0, 1.0], [0.1, 1.9], wall=0.1) == pytest.approx(0.2)
    assert host._cpu_of_try([0.0], [0.1], wall=0.05) == pytest.approx(0.1)  # of the whole process


def test_peaks_are_corrected_where_they_are_stored(tmp_path):
    right = replace(PEAKS, float32=Peak(3e11, "MatMul fc of net.onnx"))
    host.write_peaks(host.peaks_file(1, tmp_path), PEAKS)
    host.correct(right, None, tmp_path)  # these are not stored
    assert host.stored_peaks(1, tmp_path) == PEAKS
    host.correct(PEAKS, right, tmp_path)
    assert host.stored_peaks(1, tmp_path) == right
    host.correct(right, None, tmp_path)
    assert host.stored_peaks(1, tmp_path) is None


def test_threads_have_processors_of_their_own_where_there_are_enough():
    known = len(host.places(1))  # none where the system lets no thread choose
    count = len(os.sched_getaffinity(0)) if known else 1
    assert len(set(host.places(count))) == known * count
    assert host.places(count + 1) == () or not known
    with host.staying_on(host.places(1)):
        assert not known or os.sched_getaffinity(0) == set(host.places(1))
    assert len(host.places(count)) == known * count


def test_threads_are_the_physical_cores_unless_told():
    assert 1 <= host.cores() <= (os.cpu_count() or 1)
    assert host.peaks_file(host.cores()) == host.peaks_file(host.cores())


def test_an_environment_of_before_has_no_peaks():
    old = msgspec.json.encode({
        "cpu": "x", "cpu_count": 1, "cpu_flags": [], "memory_bytes": None, "gpus": [],
        "cuda": None, "os": "y", "python": "3.11", "packages": {},
    })  # fmt: skip
    assert msgspec.json.decode(old, type=Environment).peaks is None
