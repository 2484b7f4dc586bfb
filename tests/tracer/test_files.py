import os
import stat
import tracemalloc

import pytest

from tracer.errors import InputError
from tracer.support.files import (
    check_writable,
    read_regular,
    write_atomically,
    write_with_companion,
    write_with_data,
)


def test_a_file_is_written_whole_with_the_usual_permissions(tmp_path):
    write_atomically(tmp_path / "a", b"new")
    (tmp_path / "b").touch()
    assert (tmp_path / "a").read_bytes() == b"new"
    assert stat.S_IMODE((tmp_path / "a").stat().st_mode) == stat.S_IMODE(
        (tmp_path / "b").stat().st_mode
    )


def test_a_failure_leaves_what_was_there_and_nothing_else(tmp_path, monkeypatch):
    (tmp_path / "a").write_bytes(b"old")

    def full(descriptor):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(InputError, match="No space left on device"):
        write_atomically(tmp_path / "a", b"new")
    assert [p.name for p in tmp_path.iterdir()] == ["a"]
    assert (tmp_path / "a").read_bytes() == b"old"


@pytest.mark.parametrize("before", [b"old", None])
def test_a_file_and_its_companion_are_both_written_or_neither(tmp_path, monkeypatch, before):
    target, companion = tmp_path / "a", tmp_path / "a.json"
    if before is not None:
        companion.write_bytes(before)
    rename = type(target).replace

    def failing(self, other):
        if other == target:
            raise OSError(28, "No space left on device")
        return rename(self, other)

    monkeypatch.setattr(type(target), "replace", failing)
    with pytest.raises(InputError, match="No space left on device"):
        write_with_companion(target, b"new", companion, b"beside")
    content = {path.name: path.read_bytes() for path in tmp_path.iterdir()}
    assert content == ({} if before is None else {"a.json": before})
    monkeypatch.undo()
    write_with_companion(target, b"new", companion, b"beside")
    assert (target.read_bytes(), companion.read_bytes()) == (b"new", b"beside")


def test_an_existing_file_needs_force_and_a_folder_is_never_a_file(tmp_path):
    (tmp_path / "a").touch()
    with pytest.raises(InputError, match=r"the file exists.*--force"):
        check_writable(tmp_path / "a", force=False)
    check_writable(tmp_path / "a", force=True)
    check_writable(tmp_path / "new", force=False)
    with pytest.raises(InputError, match="is a folder"):
        check_writable(tmp_path, force=True)
    with pytest.raises(InputError, match="does not exist"):
        check_writable(tmp_path / "no" / "a", force=False)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="pipes with names are POSIX")
def test_a_pipe_is_never_replaced(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(InputError, match="a device or a pipe"):
        check_writable(tmp_path / "pipe", force=True)
    with pytest.raises(InputError, match="a device or a pipe"):
        write_atomically(tmp_path / "pipe", b"new")
    assert (tmp_path / "pipe").is_fifo()


@pytest.mark.skipif(os.name == "nt", reason="links need rights there")
def test_a_link_stays_and_what_it_points_to_is_written(tmp_path):
    (tmp_path / "folder").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "folder" / "a")
    check_writable(tmp_path / "link", force=False)
    write_atomically(tmp_path / "link", b"new")
    assert (tmp_path / "link").is_symlink()
    assert (tmp_path / "folder" / "a").read_bytes() == b"new"
    with pytest.raises(InputError, match="the file exists"):
        check_writable(tmp_path / "link", force=False)
    (tmp_path / "round").symlink_to("round")
    with pytest.raises(InputError, match="round: cannot be written"):
        check_writable(tmp_path / "round", force=True)


def test_any_name_that_the_system_takes_can_be_written(tmp_path):
    write_atomically(tmp_path / ("x" * 255), b"new")
    with pytest.raises(InputError, match="File name too long"):
        check_writable(tmp_path / ("x" * 256), force=False)


def test_the_folder_is_on_the_disk_too(tmp_path, monkeypatch):
    kinds = []
    real = os.fsync

    def watch(descriptor):
        kinds.append(stat.S_IFMT(os.fstat(descriptor).st_mode))
        real(descriptor)

    monkeypatch.setattr(os, "fsync", watch)
    write_atomically(tmp_path / "a", b"new")
    assert kinds == [stat.S_IFREG, stat.S_IFDIR]


def test_a_small_file_takes_little_memory(tmp_path):
    file = tmp_path / "policy.toml"
    file.write_bytes(b"x" * 1000)
    tracemalloc.start()
    try:
        assert read_regular(file) == b"x" * 1000
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("links", [True, False])
def test_a_file_that_appears_while_another_is_made_is_not_lost(links, tmp_path, monkeypatch):
    """Two commands begin while there is no file: the first to end has it, also without links."""
    path, beside = tmp_path / "model.onnx", tmp_path / "model.cert.json"

    def refuse(source, target):
        raise PermissionError(1, "Operation not permitted")

    if not links:
        monkeypatch.setattr(os, "link", refuse)
    check_writable(path, force=False)
    write_atomically(path, b"first", force=False)
    writers = [
        lambda: write_atomically(path, b"second", force=False),
        lambda: write_with_companion(path, b"second", beside, b"proof", force=False),
        lambda: write_with_data(path, lambda s: s.write(b"data"), lambda n: b"second", force=False),
    ]
    for write in writers:
        with pytest.raises(InputError, match=r"model\.onnx: the file exists") as refused:
            write()
        assert refused.value.hint == "Choose another name, or give --force."
        assert list(tmp_path.iterdir()) == [path]
        assert path.read_bytes() == b"first"
    write_atomically(path, b"second", force=True)
    assert path.read_bytes() == b"second"
