import os
import stat

import pytest

from tracer.errors import InputError
from tracer.files import check_writable, write_atomically


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
