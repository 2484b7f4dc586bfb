"""The fuzzer: some of its mutants, what once failed, and that it would find what it looks for."""

import json
import os
import subprocess
import sys
from time import monotonic

import onnx
import pytest
from onnx import parser

from tests.fuzz.minimiser import shorter, smaller_model
from tests.fuzz.seeds import ROOT
from tests.fuzz.trials import Ended
from tests.fuzz.verdicts import CONTAINED, FAILED, FINE, FORCED, LIMITED, REFUSED, verdict

COUNT, LINE = ("count", "m.onnx"), "tracer: error: m.onnx: bad\n"


def python(*args, **environment):
    """What a new interpreter prints; it must succeed."""
    ran = subprocess.run(
        [sys.executable, *args], cwd=ROOT, capture_output=True, text=True, check=False,
        env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
    )  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


@pytest.mark.nightly
def test_mutants(tmp_path):
    python("-m", "tests.fuzz", "--mutants", "60", "--jobs", "2", "--keep", str(tmp_path))


@pytest.mark.parametrize("checks", [(), pytest.param(("--checked",), marks=pytest.mark.nightly)])
def test_what_once_failed_passes(checks, tmp_path):
    python("-m", "tests.fuzz", "--corpus", *checks, "--keep", str(tmp_path))


SAME = """
import hashlib
from pathlib import Path
from tests.fuzz.mutants import SHARES, mutant
from tests.fuzz.seeds import ENERGY, LENET, TRACES, Seed
trace = (TRACES / "sums.trace").read_bytes()
contents = {"model": LENET.read_bytes(), "trace": trace}
seeds = {kind: [Seed("s", kind, contents.get(kind, ENERGY.encode()))] for kind in SHARES}
made = [mutant(seeds, 1, None, number) for number in range(100)]
print(hashlib.sha256(b"".join(each.content for each in made)).hexdigest())
"""


@pytest.mark.nightly
def test_a_mutant_does_not_depend_on_the_process():
    assert python("-c", SAME, PYTHONHASHSEED="1") == python("-c", SAME, PYTHONHASHSEED="2")


PLANTED = """
import json, os, signal, sys, time
import tracer.cli
from tests.fuzz import commands, trials
from tests.fuzz.mutants import Mutant
from tests.fuzz.verdicts import suspicious, verdict

DEEDS = {
    "count": lambda: 0,
    "interpret": lambda: os.kill(os.getpid(), signal.SIGSEGV),
    "profile": lambda: [None for _ in iter(int, 1)],
    "report": lambda: open("forgotten.txt", "w").close(),
    "compare": lambda: print("\\x1b[31m"),
}
every = [(name, "m.toml") for name in DEEDS]
trials.commands = lambda mutant: every
tracer.cli.main = lambda args: DEEDS[args[0]]() and 0 or 0
trials.PROCESSOR_S = 0.3
made = Mutant(7, "energy", "", b"", 0)
ends = trials.trials(lambda number: made, [trials.Task(7)], 2, suspicious)
print(json.dumps({every[index][0]: verdict(ended).group for _, index, ended in ends}))
"""


def test_what_goes_wrong_is_found_in_the_command_where_it_does():
    groups = json.loads(python("-c", PLANTED))
    assert groups.pop("count") == ""
    assert "SIGSEGV" in groups["interpret"]
    assert "endless" in groups["profile"]
    assert "left behind: forgotten.txt" in groups["report"]
    assert "control characters" in groups["compare"]


INCIDENT = """
Traceback (most recent call last):
  File "/x/tracer/cli/count.py", line 3, in command
  File "/x/analyzers/memory.py", line 62, in peak
  File "/x/site-packages/pandas/core/frame.py", line 9, in get
OverflowError: too large
"""
FRAMES = """Fatal Python error: Segmentation fault

Current thread 0x1 (most recent call first):
  File "/x/site-packages/{}/module.py", line 5 in run
  File "/x/tracer/executors/onnxruntime/session.py", line 40 in run
"""
ENDS = {
    "fine": (FINE, Ended(COUNT, 0, "table\n", "")),
    "a comparison that fails": (FINE, Ended(("compare", "a", "b"), 1, "table\n", "")),
    "a certificate that does not hold": (FINE, Ended(("interpret", "a"), 1, "", LINE)),
    "a failed comparison of nothing": (FAILED, Ended(COUNT, 1, "", LINE)),
    "refused": (REFUSED, Ended(COUNT, 3, "", LINE)),
    "a limit": (LIMITED, Ended(COUNT, 4, "", LINE)),
    "no documented code": (FAILED, Ended(COUNT, 9, "", LINE)),
    "an internal error": (FAILED, Ended(COUNT, 70, "", LINE, incident=INCIDENT)),
    "no line": (FAILED, Ended(COUNT, 3, "", "")),
    "two lines": (FAILED, Ended(COUNT, 3, "", LINE + LINE)),
    "a line of success": (FAILED, Ended(COUNT, 0, "", LINE)),
    "a long line": (FAILED, Ended(COUNT, 3, "", LINE.replace("bad", "b" * 600))),
    "an escape sequence": (FAILED, Ended(COUNT, 0, "\x1b[31m", "")),
    "a line of a library": (FAILED, Ended(COUNT, 0, "", "x.py:3: RuntimeWarning: overflow\n")),
    "2 GiB": (FAILED, Ended(COUNT, 0, "", "", peak=(2 << 30) + 1)),
    "onnxruntime died": (
        CONTAINED, Ended(COUNT, -11, "", "", died=11, frames=FRAMES.format("onnxruntime")),
    ),
    "onnx died": (CONTAINED, Ended(COUNT, -11, "", "", died=11, frames=FRAMES.format("onnx"))),
    "numba died": (FAILED, Ended(COUNT, -11, "", "", died=11, frames=FRAMES.format("numba"))),
    "killed": (FAILED, Ended(COUNT, -9, "", "", died=9, frames=FRAMES.format("onnx"))),
    "overdue": (FORCED, Ended(COUNT, -6, "", "", died=6, forced="overdue", frames=FRAMES)),
}  # fmt: skip


@pytest.mark.parametrize("name", ENDS)
def test_verdicts(name):
    word, ended = ENDS[name]
    assert verdict(ended).word == word
    assert bool(verdict(ended).group) == (word in (FAILED, CONTAINED, FORCED))


def test_a_group_is_named_after_our_innermost_frame():
    group = verdict(ENDS["an internal error"][1]).group
    assert group == "OverflowError at analyzers/memory.py:62"


def test_a_model_is_minimised_to_the_node_that_fails():
    model = parser.parse_model(
        '<ir_version: 9, opset_import: ["": 18]> g (float[2] x) => (float[2] y)'
        "<float[2] w = {1, 2}>"
        "{ a = Neg(x) b = Add(a, w) c = Softmax<axis=0>(b) d = Relu(c) y = Exp(d) }"
    )

    def fails(content):
        return any(n.op_type == "Softmax" for n in onnx.ModelProto.FromString(content).graph.node)

    smaller = onnx.ModelProto.FromString(
        smaller_model(model.SerializeToString(), fails, monotonic() + 60)
    )
    assert [node.op_type for node in smaller.graph.node] == ["Softmax"]
    assert not smaller.graph.initializer and not smaller.graph.input
    assert not smaller.graph.node[0].attribute


def test_bytes_are_minimised_to_those_that_fail():
    def fails(content):
        return b"bad" in content

    assert shorter(bytes(1000) + b"bad" + bytes(1000), fails, monotonic() + 60) == b"bad"
