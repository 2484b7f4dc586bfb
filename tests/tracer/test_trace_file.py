"""A saved trace comes back whole, or is refused in one line."""

import sqlite3

import numpy as np
import pandas as pd
import pytest

import tracer
from tests.graphs import integers, residual
from tracer.errors import InputError
from tracer.storage import trace_file


@pytest.fixture(scope="module")
def trace():
    return tracer.profile(residual(), batch=[1, 2], runs=3, warmup=0, threads=1, replay=1)


@pytest.fixture
def file(trace, tmp_path):
    (tmp_path / "r.trace").write_bytes(trace_file.dumps(trace))
    return tmp_path / "r.trace"


def test_what_was_saved_comes_back(trace, file):
    again = trace_file.load(file)
    pd.testing.assert_frame_equal(again.nodes, trace.nodes)
    assert (again.model, again.environment, again.notes) == (
        trace.model,
        trace.environment,
        trace.notes,
    )
    for one, other in zip(again.runs, trace.runs, strict=True):
        assert one.kernels == other.kernels
        np.testing.assert_array_equal(one.samples, other.samples)
        for figure in ("wall_us", "empty_us", "bias_us", "bias_error_us", "replayed_us"):
            np.testing.assert_array_equal(getattr(one, figure), getattr(other, figure), figure)
        assert one.tick_us == other.tick_us


POLICY = """
[c]
bits = 14
overflow = "wrap"
order = "chunked(4)"
[m]
bits = 18
bias = "last"
product_bits = 12
convention = "magnitude"
"""


@pytest.fixture
def narrow(tmp_path):
    """A trace with the sums of two nodes, and its file."""
    (tmp_path / "p.toml").write_text(POLICY)
    trace = tracer.interpret(integers(), accumulator=str(tmp_path / "p.toml"), batch=2)
    (tmp_path / "r.trace").write_bytes(trace_file.dumps(trace))
    return trace, tmp_path / "r.trace"


def test_sums_come_back_with_their_accumulators(narrow):
    trace, file = narrow
    again = trace_file.load(file)
    pd.testing.assert_frame_equal(again.nodes, trace.nodes)
    assert len(again.runs[0].sums) == 2
    for one, other in zip(again.runs[0].sums, trace.runs[0].sums, strict=True):
        assert one.tally == other.tally
        assert one.tally.accumulator == other.tally.accumulator
        np.testing.assert_array_equal(one.guaranteed_channels, other.guaranteed_channels)
        names = ("node", "guaranteed", "guaranteed_any_order", "datatype")
        assert [getattr(one, n) for n in names] == [getattr(other, n) for n in names]


@pytest.mark.one_in(3)
@pytest.mark.parametrize(
    "statement",
    [
        "DROP TABLE sums",
        "DELETE FROM sums WHERE position = 1",
        "UPDATE sums SET arrays = x'504b'",
        "UPDATE sums SET arrays = 7",
        "UPDATE sums SET record = '{}'",
        """UPDATE sums SET record = replace(record, '"bits":14', '"bits":99')""",
        """UPDATE sums SET record = replace(record, 'chunked(4)', 'chunked(0)')""",
        """UPDATE sums SET record = replace(record, '"guaranteed"', '"guarded"')""",
    ],
)
def test_damaged_sums_are_said_to_be(statement, narrow):
    file = narrow[1]
    with sqlite3.connect(file) as database:
        database.execute(statement)
    database.close()
    with pytest.raises(InputError, match=r"r\.trace: not a trace, or a damaged one \("):
        trace_file.load(file)


def test_a_trace_of_an_older_tracer_says_so(file):
    with sqlite3.connect(file) as database:
        database.execute("UPDATE meta SET value = '1' WHERE key = 'format'")
    database.close()
    with pytest.raises(InputError, match=r"older tracer\. Measure again"):
        trace_file.load(file)


DAMAGE = {
    "no table of nodes": "DROP TABLE nodes",
    "no table of runs": "DROP TABLE runs",
    "no table of kernels": "DROP TABLE kernels",
    "a column renamed": "ALTER TABLE nodes RENAME COLUMN macs TO mocs",
    "a column too many": "ALTER TABLE runs ADD COLUMN more TEXT",
    "a format that is no number": "UPDATE meta SET value = 'x' WHERE key = 'format'",
    "no model": "DELETE FROM meta WHERE key = 'model'",
    "settings of another kind": "UPDATE meta SET value = '[]' WHERE key = 'settings'",
    "text among the times": "UPDATE nodes SET time_us = 'soon' WHERE rowid = 2",
    "half an integer": "UPDATE nodes SET macs = 0.5 WHERE rowid = 1",
    "no such dtype": """UPDATE meta SET value = '{"macs":"int7"}' WHERE key = 'dtypes'""",
    "samples that are text": "UPDATE kernels SET samples = 'abc'",
    "samples that are a number": "UPDATE kernels SET samples = 5",
    "samples cut short": "UPDATE kernels SET samples = (SELECT x'789c030000000001')",
    "an unknown dtype of a kernel": "UPDATE kernels SET record = '{}'",
    "the first kernel gone": "DELETE FROM kernels WHERE position = 0",
    "the last kernel gone": "DELETE FROM kernels WHERE rowid = (SELECT max(rowid) FROM kernels)",
    "a run gone": "DELETE FROM runs WHERE position = 1",
    "a node gone": "DELETE FROM nodes WHERE rowid = 3",
}


@pytest.mark.parametrize("statement", DAMAGE.values(), ids=DAMAGE)
def test_a_damaged_trace_is_said_to_be_one(statement, file):
    with sqlite3.connect(file) as database:
        database.execute(statement)
    database.close()
    with pytest.raises(InputError, match=r"r\.trace: not a trace, or a damaged one \("):
        trace_file.load(file)


def test_every_truncation_is_refused(file):
    whole = file.read_bytes()
    for length in range(0, len(whole), 4001):
        file.write_bytes(whole[:length])
        with pytest.raises(InputError, match=r"r\.trace"):
            trace_file.load(file)


def test_a_path_that_the_system_refuses_is_told(tmp_path):
    with pytest.raises(InputError, match="File name too long"):
        trace_file.load(tmp_path / ("x" * 300))
    with pytest.raises(InputError, match="not a file"):
        trace_file.load(tmp_path)


NEWER = "UPDATE meta SET value = '999' WHERE key = 'format'; "


@pytest.mark.parametrize(
    "change",
    ["", "CREATE TABLE later (x INTEGER)", "ALTER TABLE kernels ADD COLUMN later REAL",
     "DROP TABLE kernels", "CREATE INDEX later ON kernels (run)"],
)  # fmt: skip
def test_a_trace_of_a_newer_tracer_asks_for_it_whatever_its_tables_are(file, change):
    with sqlite3.connect(file) as database:
        database.executescript(NEWER + change)
    database.close()
    with pytest.raises(InputError, match="newer tracer"):
        trace_file.load(file)


@pytest.mark.parametrize(
    "change",
    ["ALTER TABLE meta RENAME TO kept; CREATE VIEW meta AS SELECT * FROM kept",
     "UPDATE meta SET value = 'x999' WHERE key = 'format'; CREATE TABLE later (x INTEGER)",
     "UPDATE meta SET value = x'393939' WHERE key = 'format'; CREATE TABLE later (x INTEGER)",
     "DELETE FROM meta; CREATE TABLE later (x INTEGER)", "CREATE TABLE later (x INTEGER)"],
)  # fmt: skip
def test_other_tables_without_a_newer_version_are_damage(file, change):
    with sqlite3.connect(file) as database:
        database.executescript(change)
    database.close()
    with pytest.raises(InputError, match="not a trace, or a damaged one"):
        trace_file.load(file)
