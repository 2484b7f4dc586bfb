"""Traces of strangers: whatever is in the file, the answer is one line that says where it is wrong.

Each case changes a trace that an earlier tracer wrote, by SQL, and names what it is about.
"""

import io
import json
import random
import re
import shutil
import sqlite3
import zipfile
import zlib
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

import tracer.cli
from tracer.api.results import load_result
from tracer.errors import TracerError
from tracer.storage import trace_database
from tracer.text import MESSAGE

TRACES = Path(__file__).parents[1] / "fixtures" / "traces"
NUMBERS = "WITH RECURSIVE n(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM n)"


def archive(**members):
    """An .npz of these bytes or arrays."""
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", zipfile.ZIP_DEFLATED) as target:
        for name, value in members.items():
            data = value if isinstance(value, bytes) else saved(value)
            target.writestr(f"{name}.npy", data)
    return stream.getvalue()


def saved(array):
    stream = io.BytesIO()
    np.save(stream, array)
    return stream.getvalue()


def lying(shape):
    """An array of two numbers whose header tells another shape."""
    header = saved(np.zeros(2, np.int64))
    return header.replace(b"(2,), }" + b" " * 20, f"{shape}, }}".encode().ljust(27))


def times(*values):
    return zlib.compress(np.array(values, "<f8").tobytes())


BLOBS = {
    "bomb": zlib.compress(bytes(4 << 20)),
    "bytes_of_9": zlib.compress(bytes(9)),
    "cut": times(*range(100))[:-5],
    "tail": times(1.0) + b"more",
    "no_times": times(),
    "zeros": times(0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0),
    "negative": times(1, -1),
    "nan": times(1, float("nan")),
    "ages": times(*[1e308] * 12),
    "infinite": times(1, float("inf")),
    "npz_bomb": archive(outputs=np.zeros(1 << 19, np.int64)),
    "npz_empty": archive(),
    "npz_floats": archive(outputs=np.zeros(6)),
    "npz_objects": archive(outputs=b"\x93NUMPY\x01\x00\x46\x00{'descr': '|O', 'fortran_order': "
                                   b"False, 'shape': (1,), }".ljust(80) + b"\n"),
    "npz_lies": archive(outputs=lying("(1000000000000,)")),
    "npz_negative": archive(outputs=lying("(-1,)")),
    "npz_many": archive(**{f"a{n}": b"" for n in range(65)}),
    "npz_no_magic": archive(outputs=b"nothing"),
    "npz_one_channel": archive(outputs=np.ones(1, np.int64)),
    "bits_flipped": archive(outputs=np.ones(6, np.int64)).replace(b"NUMPY", b"NOMPY"),
}  # fmt: skip

SCHEMA = {  # what the file may be made of
    "a view that never ends": f"DROP TABLE meta; CREATE VIEW meta AS {NUMBERS} "
                              "SELECT CAST(x AS TEXT) AS key, 'v' AS value FROM n",
    "a view that counts without end": f"DROP TABLE kernels; CREATE VIEW kernels AS {NUMBERS} "
                                      "SELECT count(*) AS run FROM n",
    "a view of nodes": f"DROP TABLE nodes; CREATE VIEW nodes AS {NUMBERS} SELECT x AS node FROM n",
    "a view nobody reads": "CREATE VIEW more AS SELECT 1",
    "a trigger": "CREATE TRIGGER t AFTER INSERT ON meta BEGIN DELETE FROM runs;END",
    "an index of an expression": "CREATE INDEX i ON meta (hex(zeroblob(length(value) * 1000)))",
    "a table of another program": "CREATE TABLE more (x)",
    "a generated column": "DROP TABLE meta; CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT "
    "NOT NULL AS (hex(zeroblob(500000000))))",
    "a check of rows": "DROP TABLE meta; CREATE TABLE meta (key TEXT PRIMARY KEY, value TEXT NOT "
                       "NULL CHECK (length(hex(zeroblob(500000000))) > 0))",
    "a default that is a function": "DROP TABLE meta; CREATE TABLE meta (key TEXT PRIMARY KEY, "
                                    "value TEXT NOT NULL DEFAULT (randomblob(9)))",
    "a column more": "ALTER TABLE kernels ADD COLUMN more TEXT",
    "a column renamed": "ALTER TABLE runs RENAME COLUMN tick_us TO tock_us",
    "a column of nodes with a default": "ALTER TABLE nodes ADD COLUMN more TEXT DEFAULT 'x'",
    "a column of nodes more": 'ALTER TABLE nodes ADD COLUMN "more" TEXT',
    "tables without rowids": "CREATE TABLE samples (run INTEGER PRIMARY KEY, "
                             "nodes TEXT NOT NULL, arrays BLOB NOT NULL) WITHOUT ROWID",
    "no tables": "DROP TABLE meta; DROP TABLE runs; DROP TABLE kernels; DROP TABLE sums; "
                 "DROP TABLE nodes",
    "a definition that is none": "PRAGMA writable_schema = ON; UPDATE sqlite_master SET sql = NULL "
                                 "WHERE name = 'runs'",
    "a virtual table": "PRAGMA writable_schema = ON; UPDATE sqlite_master SET rootpage = 0, sql = "
                       "'CREATE VIRTUAL TABLE runs USING dbstat(main)' WHERE name = 'runs'",
    "a table on the page of another": "PRAGMA writable_schema = ON; UPDATE sqlite_master SET "
                                      "rootpage = 2 WHERE name = 'runs'",
    "the write-ahead log": "PRAGMA journal_mode = WAL",
}  # fmt: skip

CELLS = {  # table and row that the line names, and the change
    "a long text": ("meta, row 4: a cell of more than 1 MiB",
                    "UPDATE meta SET value = hex(zeroblob(3000000)) WHERE key = 'notes'"),
    "text that is not UTF-8": ("meta", "UPDATE meta SET value = CAST(x'ff' AS TEXT)"),
    "a key that is a blob": ("meta", "INSERT INTO meta VALUES (x'00', '')"),
    "a value that is a number": ("meta", "UPDATE meta SET value = x'31' WHERE key = 'notes'"),
    "no executor": ("runs, row 1", "UPDATE runs SET executor = x'00' WHERE position = 0"),
    "a batch that is text": ("runs, row 2", "UPDATE runs SET batch = 'x' WHERE position = 1"),
    "a batch below 1": ("runs, row 2", "UPDATE runs SET batch = -1 WHERE position = 1"),
    "half a batch": ("runs, row 1", "UPDATE runs SET batch = 0.5"),
    "a tick that is text": ("runs, row 1: Expected `float`, got `str` - at `tick_us`",
                            "UPDATE runs SET tick_us = 'soon'"),
    "a tick below 0": ("runs, row 1", "UPDATE runs SET tick_us = -1"),
    "inputs that are no object": ("runs, row 1", "UPDATE runs SET inputs = '[]'"),
    "notes that are numbers": ("runs, row 1", "UPDATE runs SET notes = '[1]'"),
    "notes nested deeply": ("runs, row 1", "UPDATE runs SET notes = replace(hex(zeroblob(9999)), "
                                           "'0', '[')"),
    "times that are text": ("runs, row 1", "UPDATE runs SET wall_us = 'x'"),
    "times that expand": ("runs, row 1", "UPDATE runs SET wall_us = :bomb"),
    "instrumented times that expand": ("runs, row 1", "UPDATE runs SET instrumented_us = :bomb"),
    "times of 9 bytes": ("runs, row 1", "UPDATE runs SET wall_us = :bytes_of_9"),
    "times cut short": ("runs, row 1", "UPDATE runs SET wall_us = :cut"),
    "no times": ("runs, row 1", "UPDATE runs SET wall_us = :no_times"),
    "all times 0": ("runs, row 1", "UPDATE runs SET wall_us = :zeros"),
    "a time below 0": ("runs, row 1", "UPDATE runs SET wall_us = :negative"),
    "a time that is no number": ("runs, row 1", "UPDATE runs SET wall_us = :nan"),
    "times of ages": ("runs, row 1", "UPDATE runs SET wall_us = :ages"),
    "a bias of ages": ("kernels, row 1", "UPDATE kernels SET bias_us = 1e300"),
    "an infinite time": ("runs, row 1", "UPDATE runs SET empty_us = :infinite"),
    "samples of other runs": ("runs, row 1: table kernels, row 1",
                              "UPDATE kernels SET samples = :no_times"),
    "samples that expand": ("kernels, row 2",
                            "UPDATE kernels SET samples = :bomb WHERE position = 1"),
    "samples that are a number": ("kernels, row 1", "UPDATE kernels SET samples = 5"),
    "a bias that is text": ("kernels, row 3",
                            "UPDATE kernels SET bias_us = 'x' WHERE position = 2"),
    "a kernel without a name": ("kernels, row 1",
                                "UPDATE kernels SET record = json_remove(record, '$.name')"),
    "a kernel with a tree for a name": ("kernels, row 1",
                                        "UPDATE kernels SET record = json_set(record, '$.name', "
                                        "json('[[]]'))"),
    "calls that are text": ("kernels, row 1",
                            "UPDATE kernels SET record = json_set(record, '$.calls', 'x')"),
    "a node without a name": ("nodes", "UPDATE nodes SET node = NULL WHERE rowid = 2"),
    "a node without an operator": ("nodes", "UPDATE nodes SET op_type = NULL WHERE rowid = 2"),
    "a node that is a number": ("nodes, row 2", "UPDATE nodes SET node = x'00' WHERE rowid = 2"),
    "work that is text": ("nodes, row 3", "UPDATE nodes SET macs = 'x' WHERE rowid = 3"),
    "half a multiplication": ("nodes, row 3", "UPDATE nodes SET macs = 0.5 WHERE rowid = 3"),
    "a time of bytes": ("nodes, row 1", "UPDATE nodes SET time_us = x'00'"),
}  # fmt: skip

RECORDS = {  # what the line says of the place, and the change
    "settings that are a list": ("table meta, row 4 (settings): Expected `object`, got `array`",
                                 "UPDATE meta SET value = '[]' WHERE key = 'settings'"),
    "settings nested deeply": ("table meta, row 4 (settings): settings nested more than 8 deep",
                               "UPDATE meta SET value = '{\"a\":' || "
                               "replace(hex(zeroblob(400)), '0', '[') || "
                               "replace(hex(zeroblob(400)), '0', ']') || '}' "
                               "WHERE key = 'settings'"),
    "settings that end nowhere": ("table meta, row 4 (settings): nested too deeply",
                                  "UPDATE meta SET value = '{\"a\":' || "
                                  "replace(hex(zeroblob(9999)), '0', '[') WHERE key = 'settings'"),
    "long settings": ("table meta, row 4 (settings): settings of 1,200,008 bytes",
                      "UPDATE meta SET value = json_object('a', hex(zeroblob(600000))) "
                      "WHERE key = 'settings'"),
    "an energy model without a unit": ("table meta, row 4 (settings): energy: Object missing "
                                       "required field `unit`",
                                       "UPDATE meta SET value = json_set(value, '$.energy', "
                                       "json('{\"model\":\"x\"}')) WHERE key = 'settings'"),
    "merged settings that are text": ("table meta, row 4 (settings): merged: Expected `array`",
                                      "UPDATE meta SET value = json_set(value, '$.merged', 'x') "
                                      "WHERE key = 'settings'"),
    "dtypes of other columns": ("table nodes: it has other columns than were written",
                                "UPDATE meta SET value = '{}' WHERE key = 'dtypes'"),
    "dtypes that are null": ("table meta, row 7 (dtypes): Expected `object`, got `null`",
                             "UPDATE meta SET value = 'null' WHERE key = 'dtypes'"),
    "no model": ("table meta: 'model' is missing", "DELETE FROM meta WHERE key = 'model'"),
    "a model of null": ("table meta, row 2 (model): Expected `object`, got `null`",
                        "UPDATE meta SET value = 'null' WHERE key = 'model'"),
    "opsets that are text": ("table meta, row 2 (model): Expected `object`, got `str` - at "
                             "`$.opsets`",
                             "UPDATE meta SET value = json_set(value, '$.opsets', 'x') "
                             "WHERE key = 'model'"),
    "an environment without a processor": ("table meta, row 3 (environment): Object missing "
                                           "required field `cpu`",
                                           "UPDATE meta SET value = json_remove(value, '$.cpu') "
                                           "WHERE key = 'environment'"),
    "notes that are an object": ("table meta, row 5 (notes): Expected `array`, got `object`",
                                 "UPDATE meta SET value = '{}' WHERE key = 'notes'"),
    "no format": ("table meta: 'format' is missing", "DELETE FROM meta WHERE key = 'format'"),
    "a format that is no number": ("table meta, row 1 (format): invalid literal for int()",
                                   "UPDATE meta SET value = 'x' WHERE key = 'format'"),
    "a format of 5,000 digits": ("table meta, row 1 (format): Exceeds the limit",
                                 "UPDATE meta SET value = replace(hex(zeroblob(2500)), '0', '9') "
                                 "WHERE key = 'format'"),
    "counts that are null": ("table meta, row 6 (counts): Expected `object`, got `null`",
                             "UPDATE meta SET value = 'null' WHERE key = 'counts'"),
    "a kind with escape sequences": ("holds a what-if, not a trace",
                                     "INSERT INTO meta VALUES ('kind', char(27) || '[2J')"),
    "kernels of no run": ("table kernels: rows are missing",
                          "UPDATE kernels SET run = 9 WHERE run = 1"),
}  # fmt: skip

TOPOLOGY = {
    "nodes": [*"abc"], "op_types": ["If", "Relu", "Add"], "modules": [None, "m", None],
    "producers": [[], [], [0]], "owners": [None, 0, None], "inputs": {"x": [0]},
    "outputs": {"y": 2},
}  # fmt: skip
CONNECTIONS = {  # fields of a topology that do not fit together
    "a column too short": {"modules": ["m", None]},
    "a node twice": {"nodes": [*"aba"]},
    "other nodes than the model's": {name: type(value)() for name, value in TOPOLOGY.items()},
    "a cycle": {"producers": [[2], [], [0]]},
    "a node that reads itself": {"producers": [[], [], [2]]},
    "a node before the first": {"producers": [[], [], [-1]]},
    "a node of 10^18": {"producers": [[], [], [10**18]]},
    "a node of 10^30": {"producers": [[], [], [10**30]]},
    "producers twice": {"producers": [[], [], [0, 0]]},
    "a body that reads its owner": {"producers": [[], [0], [0]]},
    "a node that reads from a body": {"producers": [[], [], [1]]},
    "a body that reads what follows its owner": {"owners": [None, None, 0]}
    | {"producers": [[], [0], [1]]},
    "an owner that is the node": {"owners": [None, 1, None]},
    "an owner below 0": {"owners": [None, -1, None]},
    "readers that are not there": {"inputs": {"x": [3]}, "outputs": {}},
    "an output of no node": {"outputs": {"y": 3}},
    "an output of a body": {"outputs": {"y": 1}},
    "an operator that is null": {"op_types": ["If", None, "Add"]},
}

SUMS = {  # partial sums
    "an archive that expands": "UPDATE sums SET arrays = :npz_bomb",
    "an archive without arrays": "UPDATE sums SET arrays = :npz_empty",
    "an archive of floats": "UPDATE sums SET arrays = :npz_floats",
    "an archive of objects": "UPDATE sums SET arrays = :npz_objects",
    "an array that lies about its size": "UPDATE sums SET arrays = :npz_lies",
    "an array of negative size": "UPDATE sums SET arrays = :npz_negative",
    "an archive of 65 arrays": "UPDATE sums SET arrays = :npz_many",
    "an array without a header": "UPDATE sums SET arrays = :npz_no_magic",
    "an array alone": "UPDATE sums SET arrays = :npz_one_channel",
    "an archive with flipped bits": "UPDATE sums SET arrays = :bits_flipped",
    "an archive that is text": "UPDATE sums SET arrays = 'PK'",
    "an impossible width": "UPDATE sums SET record = json_set(record, '$.accumulator.bits', 99)",
    "an order that is a list": "UPDATE sums SET record = json_set(record, '$.accumulator.order', "
                               "json('[]'))",
    "an unknown property": "UPDATE sums SET record = json_set(record, '$.accumulator.x', 1)",
    "a guaranteed width of 10^18": "UPDATE sums SET record = json_set(record, '$.guaranteed', "
                                   "1000000000000000000)",
    "a node that is null": "UPDATE sums SET record = json_set(record, '$.node', null)",
    "a run that is text": "UPDATE sums SET run = 'x' WHERE position = 0",
}  # fmt: skip

RESULT = "UPDATE meta SET value = {} WHERE key = 'result'"
VARIANT = "$.variants[0]"
WHAT_IF = {  # results of a what-if
    "no variants": "json_set(value, '$.variants', json('[]'))",
    "variants that are null": "json_set(value, '$.variants', null)",
    "settings that are null": "json_set(value, '$.settings', null)",
    "no data": "json_remove(value, '$.settings.data')",
    "notes that are numbers": "json_set(value, '$.notes', json('[1]'))",
    "no rows": f"json_remove(value, '{VARIANT}.answer.rows')",
    "rows that are empty": f"json_set(value, '{VARIANT}.answer.rows', json('[]'))",
    "a row twice": f"json_set(value, '{VARIANT}.answer.rows[1]', "
                   f"json_extract(value, '{VARIANT}.answer.rows[0]'))",
    "a row of 200 bits": f"json_set(value, '{VARIANT}.answer.rows[0].bits', 200)",
    "a row that counts nothing": f"json_set(value, '{VARIANT}.answer.rows[0].evaluation.overflows',"
                                 " null)",
    "no work": f"json_set(value, '{VARIANT}.work', json('[]'))",
    "work of one node twice": f"json_set(value, '{VARIANT}.work[1]', "
                              f"json_extract(value, '{VARIANT}.work[0]'))",
    "no energies": f"json_set(value, '{VARIANT}.energies', json('{{}}'))",
    "energies of other nodes": f"json_set(value, '{VARIANT}.energies.\"32\"', json('[1]'))",
    "widths that are text": f"json_set(value, '{VARIANT}.energies', json('{{\"x\":[1]}}'))",
    "observed bits out of range": f"json_set(value, '{VARIANT}.answer.observed', 99)",
    "observed bits that are a float": f"json_set(value, '{VARIANT}.answer.observed', 1.5)",
    "an accumulator of null": f"json_set(value, '{VARIANT}.answer.accumulator', null)",
    "a score that is text": f"json_set(value, '{VARIANT}.answer.score', 'x')",
    "pins of other nodes": f"json_set(value, '{VARIANT}.pinned', json('{{\"text\":\"\",\"bits\":"
                           "{\"x\":1}}'))",
    "no judgement": "json_remove(value, '$.judgement')",
    "a result that is a list": "'[]'",
    "a result cut short": "substr(value, 1, 3000)",
    "a result nested deeply": "replace(hex(zeroblob(9999)), '0', '[')",
}  # fmt: skip


@pytest.fixture
def altered(tmp_path):
    """Returns a function that copies a trace and changes it by SQL."""

    def alter(base, statements):
        path = tmp_path / "s.trace"
        shutil.copy(TRACES / f"{base}.trace", path)
        with closing(sqlite3.connect(path, isolation_level=None)) as database:
            for statement in statements.split("; "):
                names = re.findall(r"(?<=:)[a-z_0-9]+(?= |$|;)", statement)
                database.execute(statement, {name: BLOBS[name] for name in names if name in BLOBS})
        return path

    return alter


def refusal(path, capfd):
    """The line that `tracer report` ends with."""
    assert tracer.cli.main(["report", str(path)]) == 3
    out, err = capfd.readouterr()
    assert out == ""
    assert err.startswith(f"tracer: error: {path}: ") and err.count("\n") == 1
    assert err[:-1].isprintable() and len(err) < MESSAGE + 20
    assert "internal" not in err
    assert [each.name for each in path.parent.iterdir()] == [path.name]
    return err


@pytest.mark.parametrize("statements", SCHEMA.values(), ids=SCHEMA)
def test_a_file_with_anything_but_tables_of_a_trace_is_refused(statements, altered, capfd):
    refusal(altered("profile", statements), capfd)


@pytest.mark.parametrize(("place", "statement"), CELLS.values(), ids=CELLS)
def test_a_damaged_row_is_named(place, statement, altered, capfd, monkeypatch):
    monkeypatch.setattr(trace_database, "CELL", 1 << 20)
    monkeypatch.setattr(trace_database, "_EXPANDED", 1 << 10)
    monkeypatch.setattr(trace_database, "_TIMES", 1 << 20)
    monkeypatch.setattr(trace_database, "_EXPANSION", 8)
    assert f"table {place}" in refusal(altered("profile", statement), capfd)


@pytest.mark.parametrize(("place", "statement"), RECORDS.values(), ids=RECORDS)
def test_a_record_of_another_form_is_named(place, statement, altered, capfd):
    assert place in refusal(altered("profile", statement), capfd)


@pytest.mark.parametrize("wrong", CONNECTIONS.values(), ids=CONNECTIONS)
def test_a_topology_that_does_not_fit_together_is_refused(wrong, altered, capfd):
    def with_topology(fields):
        text = json.dumps(fields).replace("'", "''")
        model = f"json_set(value, '$.nodes', 3, '$.topology', json('{text}'))"
        return f"UPDATE meta SET value = {model} WHERE key = 'model'"

    assert load_result(altered("profile", with_topology(TOPOLOGY))).model.topology is not None
    assert "topology" in refusal(altered("profile", with_topology(TOPOLOGY | wrong)), capfd)


@pytest.mark.parametrize("statement", SUMS.values(), ids=SUMS)
def test_partial_sums_that_are_none_are_refused(statement, altered, capfd, monkeypatch):
    monkeypatch.setattr(trace_database, "_EXPANDED", 1 << 20)
    monkeypatch.setattr(trace_database, "_EXPANSION", 8)
    assert "table sums" in refusal(altered("sums", statement), capfd)


@pytest.mark.parametrize("value", WHAT_IF.values(), ids=WHAT_IF)
def test_a_what_if_that_does_not_fit_together_is_refused(value, altered, capfd):
    assert "table meta, row 4 (result): " in refusal(altered("whatif", RESULT.format(value)), capfd)


def test_statements_that_would_not_end_are_stopped(altered, monkeypatch):
    """The schema lets no such statement in; this is what stops one that it might overlook."""
    endless = f"CREATE VIEW meta AS {NUMBERS} SELECT 'kind' AS key, count(*) AS value FROM n"
    path = altered("profile", f"DROP TABLE meta; {endless}")
    monkeypatch.setattr("tracer.storage.trace_database.check_tables", lambda database: None)
    with pytest.raises(TracerError, match="too many steps"):
        load_result(path)


def test_bytes_flipped_at_random_are_shown_or_refused(tmp_path):
    path = tmp_path / "s.trace"
    chance = random.Random(7)
    refused = 0
    for base in ("profile", "sums", "whatif"):
        whole = (TRACES / f"{base}.trace").read_bytes()
        for _ in range(12):
            data = bytearray(whole)
            for _ in range(chance.choice([1, 5, 50])):
                data[chance.randrange(len(data))] ^= 1 << chance.randrange(8)
            path.write_bytes(data)
            try:
                repr(load_result(path))
            except TracerError as error:
                refused += 1
                assert str(error).startswith(str(path))
    assert refused > 6
