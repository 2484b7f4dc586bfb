"""What-ifs that are interrupted, resumed, or pointed at the trace of something else."""

from __future__ import annotations

import json
import sqlite3
import subprocess
import sys
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

import tracer
from tests.tracer.whatif import networks
from tracer.analyzers.views import render
from tracer.api.whatif import what_if
from tracer.errors import InputError
from tracer.storage import trace_database, trace_file, whatif_file
from tracer.whatif import evaluation
from tracer.whatif.options import WhatIfOptions

OPTIONS = WhatIfOptions(batch=4, accuracy_budget=10)
WIDTHS = "8:20"
FIXTURES = Path(__file__).parents[2] / "fixtures" / "traces"

KILLED = """
import os, signal, sys
from tracer.api.whatif import what_if
from tracer.whatif.options import WhatIfOptions

def killing(done, total, what):
    if what == "evaluating" and done == 6:
        os.kill(os.getpid(), signal.SIGKILL)

options = WhatIfOptions(batch=4, accuracy_budget=10)
what_if(
    sys.argv[1], "8:20", sys.argv[2], options,
    trace=sys.argv[3], progress=killing, in_process=True,
)
"""


@pytest.fixture
def files(tmp_path):
    return networks.model(tmp_path / "m.onnx"), networks.data(tmp_path / "d.npz")


def evaluations(path):
    with sqlite3.connect(path) as database:
        return database.execute("SELECT COUNT(*) FROM evaluations").fetchone()[0]


def rendered(result):
    return render(result, "json")


@pytest.fixture
def counted(monkeypatch):
    evaluated = []

    def counting(real):
        def evaluate(self, bits, *others, **named):
            evaluated.append(dict(bits))
            return real(self, bits, *others, **named)

        return evaluate

    for name in ("evaluate", "score"):
        real = getattr(evaluation.Evaluator, name)
        monkeypatch.setattr(evaluation.Evaluator, name, counting(real))
    return evaluated


def test_a_killed_run_goes_on_and_ends_as_if_nothing_had_been(files, tmp_path, counted):
    path = tmp_path / "w.trace"
    arguments = [str(each) for each in (*files, path)]
    ended = subprocess.run([sys.executable, "-c", KILLED, *arguments], check=False)
    assert ended.returncode == -9
    done = evaluations(path)
    assert done == 5  # the sixth pass was the fifth evaluation; the first is the wide one
    with pytest.raises(InputError, match="was interrupted"):
        whatif_file.load(path)
    resumed = what_if(files[0], WIDTHS, files[1], OPTIONS, trace=path)
    again = len(counted)
    whole = what_if(files[0], WIDTHS, files[1], OPTIONS)
    assert len(counted) - again == again + done
    assert rendered(resumed) == rendered(whole) == rendered(whatif_file.load(path))


def test_a_finished_run_makes_nothing_again_and_the_question_may_change(files, tmp_path, counted):
    path = tmp_path / "w.trace"
    first = what_if(files[0], WIDTHS, files[1], OPTIONS, trace=path)
    count = len(counted)
    assert count == evaluations(path) == len(first.variants[0].answer.evaluations)
    assert rendered(what_if(files[0], WIDTHS, files[1], OPTIONS, trace=path)) == rendered(first)
    assert len(counted) == count
    options = replace(OPTIONS, search=False)
    wider = what_if(files[0], "8:22", files[1], options, trace=path)
    assert {bits["c1"] if "c1" in bits else next(iter(bits.values()))
            for bits in counted[count:]} <= {21, 22}  # fmt: skip
    assert [row.bits for row in wider.variants[0].answer.rows] == list(range(8, 23))


@pytest.mark.one_in(5)
@pytest.mark.parametrize("what", ["model", "data", "metric", "batch"])
def test_a_trace_of_something_else_is_kept(files, tmp_path, what):
    path = tmp_path / "w.trace"
    options = replace(OPTIONS, search=False)
    what_if(files[0], "12", files[1], options, trace=path)
    before = path.read_bytes()
    model, data = files
    if what == "model":
        model = networks.model(tmp_path / "m.onnx", seed=4)
    if what == "data":
        data = networks.data(tmp_path / "d.npz", seed=8)
    if what == "metric":
        options = replace(options, metric="agreement")
    if what == "batch":
        options = replace(options, batch=3)
    with pytest.raises(InputError, match=f"holds evaluations of something else: {what} "):
        what_if(model, "12", data, options, trace=path)
    assert path.read_bytes() == before
    anew = what_if(model, "12", data, options, trace=path, force=True)
    assert evaluations(path) == len(anew.variants[0].answer.evaluations)


def test_other_files_are_told(files, tmp_path):
    path = tmp_path / "w.trace"
    path.write_text("nothing")
    with pytest.raises(InputError, match="holds no what-if"):
        what_if(files[0], "12", files[1], OPTIONS, trace=path)
    assert path.read_text() == "nothing"
    with pytest.raises(InputError):
        whatif_file.load(path)
    with pytest.raises(InputError, match="no such trace"):
        whatif_file.load(tmp_path / "none.trace")
    whole = tmp_path / "v.trace"
    what_if(files[0], "12", files[1], replace(OPTIONS, search=False), trace=whole)
    with pytest.raises(InputError, match="holds a what-if"):
        trace_file.load(whole)
    whole.write_bytes(whole.read_bytes()[:9000])
    with pytest.raises(InputError):
        whatif_file.load(whole)


def test_a_trace_and_a_what_if_have_one_schema_and_are_told_apart(files, tmp_path):
    what_if(files[0], "12", files[1], replace(OPTIONS, search=False), trace=tmp_path / "w.trace")
    run = tracer.count(files[0], batch=1)
    (tmp_path / "r.trace").write_bytes(trace_file.dumps(run))

    def schema(name):
        with sqlite3.connect(tmp_path / name) as database:
            tables = database.execute("SELECT name, sql FROM sqlite_master WHERE type = 'table'")
            version = database.execute("SELECT value FROM meta WHERE key = 'format'").fetchone()
            return dict(tables.fetchall()), version

    (trace_tables, trace_version), (tables, version) = schema("r.trace"), schema("w.trace")
    del trace_tables["nodes"]  # its columns are those of the node table
    assert (trace_tables, trace_version) == (tables, version)
    with pytest.raises(InputError, match="holds a trace, not a what-if"):
        whatif_file.load(tmp_path / "r.trace")
    with pytest.raises(InputError, match="holds a what-if, not a trace"):
        trace_file.load(tmp_path / "w.trace")


def test_a_what_if_of_an_earlier_format_is_continued(tmp_path):
    path = tmp_path / "w.trace"
    path.write_bytes((FIXTURES / "whatif.trace").read_bytes())
    with sqlite3.connect(path) as database:
        meta = dict(database.execute("SELECT key, value FROM meta").fetchall())
        variant, widths = database.execute("SELECT variant, widths FROM evaluations").fetchone()
    assert meta["format"] == "2"
    result = whatif_file.load(path)
    with closing(whatif_file.WhatIfFile(path, json.loads(meta["identity"]))) as file:
        evaluation = file.find(variant, json.loads(widths))
        assert evaluation in result.variants[0].answer.evaluations
        file.finish(result)
    with sqlite3.connect(path) as database:
        query = "SELECT value FROM meta WHERE key = 'format'"
        assert database.execute(query).fetchone() == (str(trace_database.FORMAT),)
    assert rendered(whatif_file.load(path)) == rendered(result)
