"""What the machine can do: measured when it must be, kept, and never slower than what was seen."""

import os
import time
from dataclasses import replace

import msgspec
import numpy as np
import pytest

from tracer import host
from tracer.host import measuring, peak_timer, store, triad
from tracer.host.measuring import measure
from tracer.host.peak_timer import PeakTimer
from tracer.interpreter.kernel_loading import loaded
from tracer.records.environment import Environment, Peak, Peaks

PEAKS = Peaks(1, Peak(1e11, "a"), Peak(2e10, "b"), Peak(2e11, "c"))


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(peak_timer, "_SECONDS", 0.0)
    monkeypatch.setattr(triad, "_LEAST_BYTES", 1 << 20)
    monkeypatch.setattr(triad, "_last_level_cache", lambda: 0)


def test_every_peak_is_measured_and_says_by_what(quick):
    peaks = measure(1)
    assert peaks.threads == 1
    assert peaks.float32.rate > 1e8
    assert peaks.memory.rate > 1e8
    assert "matmul" in peaks.float32.by.lower()
    assert "1 MiB" in peaks.memory.by
    assert 0 < peaks.cpu_share <= 1.5


@pytest.mark.parametrize(("flags", "measured"), [(("avx2",), True), (("sve",), False)])
def test_int8_is_measured_where_there_is_an_instruction_for_it(quick, monkeypatch, flags, measured):
    monkeypatch.setattr(measuring.environment, "cpu_flags", lambda: flags)
    assert (measure(1).int8 is not None) is measured


def test_the_triad_is_the_sum_that_its_bytes_are_counted_for():
    b, c = np.random.default_rng(0).normal(size=(2, 1000))
    a = np.empty_like(b)
    loaded("triad", "tracer.host.kernels").triad(a, b, c, 3.0)
    np.testing.assert_allclose(a, b + 3.0 * c)


@pytest.mark.parametrize(
    ("cache", "mib"), [(0, 64), (32 << 20, 64), (100 << 20, 200), (1 << 40, 512)]
)
def test_arrays_are_larger_than_the_last_cache(cache, mib):
    assert triad.array_bytes(cache) == mib << 20


def test_peaks_are_measured_once_for_each_thread_count(tmp_path, monkeypatch):
    measured_threads, messages = [], []
    monkeypatch.setattr(
        measuring, "measure", lambda n: measured_threads.append(n) or replace(PEAKS, threads=n)
    )
    assert host.known(1, tmp_path) is None
    for threads in (1, 2, 1, 2):
        assert host.peaks(threads, folder=tmp_path, announce=messages.append).threads == threads
    assert measured_threads == [1, 2]
    assert len(messages) == 4  # what is being done, and where it is kept
    assert host.known(1, tmp_path) == PEAKS
    host.peaks(1, folder=tmp_path, anew=True)
    assert measured_threads == [1, 2, 1]


def test_a_busy_measurement_lowers_nothing_that_was_seen_before(tmp_path, monkeypatch):
    low = Peaks(1, Peak(9e10, "x"), Peak(3e10, "y"), None, cpu_share=0.4)
    peaks = []
    for measured in (PEAKS, low, replace(low, cpu_share=1.0)):
        monkeypatch.setattr(measuring, "measure", lambda n, peaks=measured: peaks)
        peaks.append(host.peaks(1, folder=tmp_path, anew=True))
    assert peaks[0] == PEAKS
    assert peaks[1] == replace(PEAKS, memory=low.memory)
    assert not peaks[1].is_busy
    assert peaks[2] == replace(low, cpu_share=1.0)  # measured alone, it is what there is


def test_other_versions_measure_anew(tmp_path, monkeypatch):
    before = store.file(1, tmp_path)
    monkeypatch.setattr(store, "_version", lambda package: "0")
    assert store.file(1, tmp_path) != before


@pytest.mark.parametrize("damage", [b"", b"{", b'{"threads": "many"}'])
def test_a_damaged_file_is_measured_over(tmp_path, damage, monkeypatch):
    monkeypatch.setattr(measuring, "measure", lambda n: PEAKS)
    store.file(1, tmp_path).write_bytes(damage)
    assert host.known(1, tmp_path) is None
    assert host.peaks(1, folder=tmp_path) == host.known(1, tmp_path) == PEAKS


def test_a_folder_that_cannot_be_written_costs_a_note_alone(tmp_path, monkeypatch):
    monkeypatch.setattr(measuring, "measure", lambda n: PEAKS)
    (tmp_path / "file").write_text("")
    messages = []
    assert host.peaks(1, folder=tmp_path / "file", announce=messages.append) == PEAKS
    assert "cannot be written" in messages[-1]


def test_a_machine_that_is_busy_with_others_is_known_by_the_cpu_time_it_gives():
    timer = PeakTimer(1)
    timer.best(lambda: time.sleep(0.01))  # what others take is time that we wait
    assert timer.cpu_share < 0.5
    assert replace(PEAKS, cpu_share=timer.cpu_share).is_busy
    assert not PEAKS.is_busy


def test_threads_are_the_physical_cores_unless_told():
    assert 1 <= host.cores() <= (os.cpu_count() or 1)
    assert store.file(host.cores()) == store.file(host.cores())


def test_an_environment_of_before_has_no_peaks():
    old = msgspec.json.encode({
        "cpu": "x", "cpu_count": 1, "cpu_flags": [], "memory_bytes": None, "gpus": [],
        "cuda": None, "os": "y", "python": "3.11", "packages": {},
    })  # fmt: skip
    assert msgspec.json.decode(old, type=Environment).peaks is None
