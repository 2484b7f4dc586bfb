"""Temporary files and folders: gone with their owner, or with the next sweep if it was killed."""

import contextlib
import gc
import os
import pathlib
import subprocess
import sys
import tempfile
import threading
import weakref

import pytest

from tracer.errors import InputError
from tracer.support import temporary
from tracer.support.files import create_atomically, write_atomically

HOLDER = """
import sys, time
from pathlib import Path
from tracer.support.temporary import TemporaryFolder, temporary_file
folder = TemporaryFolder()
(folder.path / "inner").mkdir()
with temporary_file(folder.path.parent) as file:
    print(folder.path, file, flush=True)
    time.sleep(600)
"""


@pytest.fixture
def place(tmp_path, monkeypatch):
    """The folder for temporary files."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    return tmp_path


@pytest.mark.skipif(os.name == "nt", reason="marks are POSIX")
def test_a_sweep_takes_at_once_what_a_killed_process_left_and_nothing_else(place):
    users = [place / "tracer-results", place / ".tracer-notes"]
    for path in users:
        path.mkdir()
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None
        held = [pathlib.Path(path) for path in process.stdout.readline().split()]
        temporary.sweep()
        assert sorted(place.iterdir()) == sorted([*held, *users])
        process.kill()
    temporary.sweep()
    assert sorted(place.iterdir()) == sorted(users)


@pytest.mark.skipif(os.name == "nt", reason="marks are POSIX")
def test_sweeps_at_any_moment_take_nothing_from_those_who_write(place):
    done = threading.Event()

    def sweep():
        while not done.is_set():
            temporary.sweep(place)

    sweeper = threading.Thread(target=sweep)
    sweeper.start()
    try:
        for number in range(200):
            write_atomically(place / "file", b"%d" % number)
            with temporary.TemporaryFolder() as folder:
                (folder / "file").touch()
            assert (place / "file").read_bytes() == b"%d" % number
    finally:
        done.set()
        sweeper.join()
    assert [path.name for path in place.iterdir()] == ["file"]


def test_what_a_sweep_removes_before_it_is_marked_is_made_again(place, monkeypatch):
    real, swept = temporary.FileInUse.__init__, []

    def sweeping(self, path):
        if not swept:
            swept.append(path)
            temporary.sweep()
        real(self, path)

    monkeypatch.setattr(temporary.FileInUse, "__init__", sweeping)
    with temporary.TemporaryFolder() as folder:
        assert folder == swept[0] and folder.is_dir()


def test_of_many_that_create_a_file_one_does(place):
    for number in range(20):
        path, winners = place / f"{number}", []
        start = threading.Barrier(4)

        def create(name, path=path, winners=winners, start=start):
            start.wait()
            if create_atomically(path, name):
                winners.append(name)

        threads = [threading.Thread(target=create, args=(b"%d" % n,)) for n in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert [path.read_bytes()] == winners


@pytest.mark.parametrize("call", ["mkdir", "finalize"])
def test_an_interrupted_temporary_folder_leaves_nothing(call, place, monkeypatch):
    owner = {"mkdir": pathlib.Path, "finalize": weakref}[call]
    original = getattr(owner, call)

    def interrupted(*args, **kwargs):
        original(*args, **kwargs)
        raise KeyboardInterrupt

    monkeypatch.setattr(owner, call, interrupted)
    with contextlib.suppress(KeyboardInterrupt):
        temporary.TemporaryFolder()
    gc.collect()
    assert not list(place.iterdir())


def test_a_temporary_folder_is_private_and_goes_with_its_owner():
    with temporary.TemporaryFolder() as path:
        (path / "file").touch()
        assert path.stat().st_mode & 0o777 == 0o700
    assert not path.exists()
    folder = temporary.TemporaryFolder()
    path = folder.path
    del folder
    gc.collect()
    assert not path.exists()


def test_a_place_that_takes_no_files_is_named(place, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(place / "none"))
    for make in (temporary.TemporaryFolder, temporary.unnamed_file, temporary.check_room):
        with pytest.raises(InputError, match=r"none: temporary files cannot be written.*TMPDIR"):
            make()
    monkeypatch.setattr(tempfile, "tempdir", None)
    monkeypatch.setattr(tempfile, "_candidate_tempdir_list", lambda: [str(place / "none")])
    with pytest.raises(InputError, match=r"no folder for temporary files can be written.*TMPDIR"):
        temporary.TemporaryFolder()
