"""Several processes and one trace: none deletes what another writes, and no lock outlives one."""

import shutil
import sqlite3
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

import tracer
import tracer.cli
from tracer.errors import InputError, locate_errors
from tracer.records.whatif import Evaluation
from tracer.storage import whatif_file
from tracer.storage.whatif_file import WhatIfFile
from tracer.support.files import check_writable, write_atomically
from tracer.support.temporary import FileInUse, InUseError

TRACES = Path(__file__).parents[1] / "fixtures" / "traces"
IDENTITY = {"model": "m.onnx"}
IN_USE = r"w\.trace: in use by another process\. Wait until it ends, or choose another name\."

HOLDER = """
import sys, time
from pathlib import Path
from tracer.storage.whatif_file import WhatIfFile
file = WhatIfFile(Path(sys.argv[1]), {"model": "m.onnx"})
print("open", flush=True)
time.sleep(600)
"""


@pytest.fixture
def path(tmp_path):
    return tmp_path / "w.trace"


@pytest.fixture
def holder(path):
    """A process that has the file open, as a running sweep does."""
    with subprocess.Popen(
        [sys.executable, "-c", HOLDER, str(path)], stdout=subprocess.PIPE, text=True
    ) as process:
        assert process.stdout is not None and process.stdout.readline() == "open\n"
        yield process
        process.kill()


def test_a_file_that_a_sweep_has_open_is_not_replaced(path, holder):
    before = path.stat().st_ino
    with pytest.raises(InputError, match=IN_USE):
        WhatIfFile(path, {"model": "other.onnx"}, force=True)
    with pytest.raises(InputError, match=IN_USE):
        check_writable(path, force=True)
    with pytest.raises(InputError, match=IN_USE):
        write_atomically(path, b"x")
    assert path.stat().st_ino == before


def test_sweeps_that_begin_at_once_continue_each_other(path):
    def sweep(bits):
        start.wait()
        with closing(WhatIfFile(path, IDENTITY)) as file:
            file.store("v", Evaluation({"a": bits}, 1.0, None))

    for _ in range(10):
        start = threading.Barrier(3)
        with ThreadPoolExecutor(3) as pool:
            list(pool.map(sweep, (8, 9, 10)))
        with closing(WhatIfFile(path, IDENTITY)) as file:
            assert all(file.find("v", {"a": bits}) for bits in (8, 9, 10))
        path.unlink()


def test_a_sweep_whose_file_is_replaced_says_so(path):
    with closing(WhatIfFile(path, IDENTITY)) as file:
        path.unlink()
        with pytest.raises(InputError, match=r"w\.trace: another process has replaced or removed"):
            file.store("v", Evaluation({"a": 8}, 1.0, None))


def test_a_killed_process_leaves_no_lock(path, holder):
    with closing(WhatIfFile(path, IDENTITY)) as second:  # the same sweep may run twice
        second.store("v", Evaluation({"a": 8}, 1.0, None))
    holder.kill()
    holder.wait()
    write_atomically(path, b"x")
    assert path.read_bytes() == b"x"
    assert [each.name for each in path.parent.iterdir()] == ["w.trace"]


def test_a_locked_file_is_in_use_for_every_command(path, capfd):
    shutil.copy(TRACES / "whatif.trace", path)
    with closing(sqlite3.connect(path, isolation_level=None)) as database:
        database.execute("BEGIN EXCLUSIVE")
        assert tracer.cli.main(["report", str(path)]) == 3
        err = capfd.readouterr().err
        assert err.startswith(f"tracer: error: {path}: in use by another process.")
        assert "--force" not in err
        for force in (False, True):
            with pytest.raises(InputError, match=IN_USE):
                WhatIfFile(path, IDENTITY, force)
    assert path.exists()


def unfinished(path):
    """A file as `kill -9` leaves it in the middle of a transaction, with its journal."""
    original = path.with_name("original.trace")
    with closing(WhatIfFile(original, IDENTITY)) as file:
        for bits in range(2, 65):
            file.store("v", Evaluation({f"node{n}": bits for n in range(99)}, 1.0, None))
    with closing(sqlite3.connect(original, isolation_level=None)) as database:
        database.execute("PRAGMA cache_size = 1")
        database.execute("BEGIN")
        database.execute("UPDATE evaluations SET record = 'torn'")
        shutil.copy(original, path)
        shutil.copy(f"{original}-journal", f"{path}-journal")
        database.execute("ROLLBACK")


def test_an_unfinished_transaction_is_undone(path):
    unfinished(path)
    with pytest.raises(InputError, match="was interrupted"):
        whatif_file.load(path)
    with closing(WhatIfFile(path, IDENTITY)) as file:
        bits = {f"node{n}": 9 for n in range(99)}
        assert file.find("v", bits) == Evaluation(bits, 1.0, None)
    assert not Path(f"{path}-journal").exists()


def test_a_damaged_evaluation_is_named(path):
    with closing(WhatIfFile(path, IDENTITY)) as file:
        file.store("v", Evaluation({"a": 8}, 1.0, None))
    for record in ("torn", "[]", '{"bits":{"a":9},"score":1.0,"overflows":null}'):
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE evaluations SET record = ?", (record,))
        with (
            closing(WhatIfFile(path, IDENTITY)) as file,
            pytest.raises(InputError, match=r'w\.trace: .*the row of {"a":8}.* --force'),
        ):
            file.find("v", {"a": 8})
    with closing(WhatIfFile(path, IDENTITY, force=True)) as file:
        assert file.find("v", {"a": 8}) is None


def test_a_file_of_a_newer_tracer_is_kept_without_force(path):
    WhatIfFile(path, IDENTITY).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE meta SET value = '99' WHERE key = 'format'")
    before = path.read_bytes()
    with pytest.raises(InputError, match="holds no what-if of this tracer"):
        WhatIfFile(path, IDENTITY)
    assert path.read_bytes() == before


def test_a_sweep_that_begins_anew_looks_at_its_file_before_it_reads_the_data(path):
    WhatIfFile(path, IDENTITY).close()
    holder = FileInUse(path)
    with pytest.raises(InputError, match=IN_USE):
        tracer.what_if("gone.onnx", "8:9", "gone.npz", trace=path, force=True, in_process=True)
    holder.release()


@pytest.mark.parametrize("identity", ["[1]", "null", "7"])
def test_a_file_without_an_identity_is_no_what_if(path, identity):
    WhatIfFile(path, IDENTITY).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("UPDATE meta SET value = ? WHERE key = 'identity'", (identity,))
    with pytest.raises(InputError, match="holds no what-if"):
        WhatIfFile(path, IDENTITY)


def test_a_trigger_of_a_stranger_does_not_run_when_a_sweep_continues(path):
    WhatIfFile(path, IDENTITY).close()
    with closing(sqlite3.connect(path)) as database, database:
        database.execute("CREATE TRIGGER t AFTER INSERT ON evaluations BEGIN DELETE FROM meta; END")
    with pytest.raises(InputError, match="holds no what-if"):
        WhatIfFile(path, IDENTITY)


def test_the_error_of_a_file_in_use_can_be_located(path):
    path.write_bytes(b"x")
    mark = FileInUse(path)
    with pytest.raises(InUseError, match=rf"^row 3: .*{IN_USE}$"), locate_errors("row 3"):
        write_atomically(path, b"y")
    mark.release()


def test_a_mark_survives_only_as_long_as_its_owner(path):
    path.write_bytes(b"x")
    mark = FileInUse(path)
    with pytest.raises(InputError, match=IN_USE):
        write_atomically(path, b"y")
    mark.release()
    write_atomically(path, b"y")
    assert path.read_bytes() == b"y"
