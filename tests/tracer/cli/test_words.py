"""Words that a command line does not know: what was meant is named, or another command."""

import difflib
import json
import re
from pathlib import Path

import numpy as np
import onnx
import pytest

import tracer.cli
from tests.graphs import residual
from tracer.accumulators.spec.accumulator import Accumulator
from tracer.analyzers import energy
from tracer.arithmetic.black_box import words
from tracer.errors import InputError, is_lack_of_memory
from tracer.text import ask, suggest


@pytest.fixture(autouse=True)
def model(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    onnx.save(residual(), "m.onnx")


def run(capfd, text):
    """Exit code, stdout and stderr of a command."""
    code = tracer.cli.main(text.split())
    return code, *capfd.readouterr()


def test_suggestions_are_those_of_difflib_the_best_first():
    known = ["profile", "prune", "report", "profiles", "quantize"]
    assert suggest("profle", known) == "Did you mean 'profile' or 'profiles'? "
    assert suggest("profle", known).split("'")[1] == difflib.get_close_matches("profle", known)[0]
    assert suggest("--MACS", ["macs"]) == "Did you mean 'macs'? "
    assert suggest("zzz", known) == suggest("profle", ()) == ask([]) == ""


MEANT = {
    "profle m.onnx": "'profile'",
    "quantze m.onnx": "'quantize'",
    "helpp": "'help'",
    "help profle": "'profile'",
    "count m.onnx --btach 2": "'--batch'",
    "profile -runs 5 m.onnx": "'--runs'",
    "count m.onnx --by modul": "'module'",
    "count m.onnx --sort mac": "'MACs'",
    "count m.onnx --sort tme": "'time'",
    "count m.onnx --energy labb": "'lab'",
    "count m.onnx -o x.htm": "'html'",
    "interpret m.onnx --accumulator x86-madubs": "'x86-maddubs'",
    "interpret m.onnx --accumulator 18 --order sequental": "'sequential'",
    "interpret m.onnx --accumulator 18(overflw=wrap)": "'overflow'",
    "interpret m.onnx --accumulator Covn=18": "'Conv'",
    "interpret m.onnx --accumulator 18 --data digts": "'digits'",
    "whatif m.onnx --accumulator 9:12 --data digits --metric top2": "'top1' or 'top5'",
    "profile m.onnx --provider cpuu": "'cpu'",
    "profile m.onnx --optimization baisc": "'basic'",
    "profile m.onnx --dim M=3": None,
    "compare m.onnx m.onnx@ortt": "'ort'",
    "compare m.onnx m.onnx@ort:non": "'none'",
    "tune m.onnx --try threds": "'threads'",
    "tune m.onnx --allow quantise": "'quantize'",
    "profile mm.onnx": "'m.onnx'",
    # the same thing has another word in some commands
    "compare m.onnx m.onnx --runs 4": "'--sessions'",
    "interpret m.onnx --calibrate digits": "'--data'",
    "narrow m.onnx --bits 9 --calibrate digits": "'--data' or '--test'",
    "whatif m.onnx --bits 9:12 --data digits": "'--accumulator'",
    "profile m.onnx --device cuda": "'--provider'",
    "profile net.py:Net --provider cpu": "'--device'",
}


@pytest.mark.parametrize(("text", "meant"), MEANT.items(), ids=MEANT)
def test_a_name_that_is_refused_has_a_suggestion(text, meant, capfd):
    code, out, err = run(capfd, text)
    assert (code in (2, 3), out, err.count("\n")) == (True, "", 1)
    assert f"Did you mean {meant}?" in err if meant else "Did you mean" not in err


def test_an_option_of_other_commands_names_them(capfd):
    _, _, err = run(capfd, "compare m.onnx m.onnx --accumulator 18")
    assert "It is an option of tracer count, tracer extract, tracer interpret, tracer narrow" in err


OTHERS = {
    "profile r.trace": "tracer report r.trace shows it",
    "export r.trace -o x.onnx": "tracer report r.trace shows it",
    "r.trace": "tracer report r.trace shows it",
    "report m.onnx": "tracer profile m.onnx measures it",
    "m.onnx": "tracer profile m.onnx measures it",
    "report x.npz": "--inputs x.npz",
    "count x.npz": "--inputs x.npz",
    "compare m.onnx w.pt": "FILE.py:NAME --weights w.pt",
    "profile plan.json": "--plan",
    "compare m.onnx page.html": "Open it as it is",
    "narrow net.tflite --bits 9 --data digits": "tf2onnx",
    "profile test_data_set_0": "--inputs test_data_set_0",
    "profile net.py": "net.py:NAME. It has Net",
}


@pytest.mark.parametrize(("text", "told"), OTHERS.items(), ids=OTHERS)
def test_a_file_of_another_command_names_the_command(text, told, capfd, tmp_path):
    for name in ("r.trace", "w.pt", "plan.json", "page.html", "net.tflite"):
        (tmp_path / name).write_bytes(b"{}")
    np.savez("x.npz", x=np.ones(3))
    (tmp_path / "test_data_set_0").mkdir()
    (tmp_path / "test_data_set_0" / "input_0.pb").touch()
    (tmp_path / "net.py").write_text("def Net(): ...\n")
    code, out, err = run(capfd, text)
    assert (code in (2, 3), out, err.count("\n")) == (True, "", 1)
    assert told in err


def test_a_quiet_command_says_nothing_but_its_result(capfd):
    assert run(capfd, "-q count m.onnx -o all.json") == (0, "", "")
    assert json.loads(Path("all.json").read_text())["runs"]
    loud = run(capfd, "count m.onnx -o other.json")
    assert "Conv" in loud[1] and loud[2] == "wrote other.json\n"
    page = loud[1].partition("╭")[0]  # the box with the next step
    assert page != loud[1] and run(capfd, "count m.onnx -q") == (0, page, "")
    assert run(capfd, "count -q missing.onnx")[2].startswith("tracer: error: missing.onnx")


def test_a_verbose_command_tells_steps_notes_and_causes(capfd):
    profile = "profile m.onnx --runs 3 --threads 1 --no-roofline"
    _, terse, silent = run(capfd, profile)
    code, out, err = run(capfd, f"{profile} -v")
    assert (code, silent) == (0, "")
    assert "note: inputs are random" in out and out.count("note:") >= terse.count("note:")
    steps = [line.split(" s  ")[1] for line in err.splitlines()]
    assert "warming up (1)" in steps or "warming up (5)" in steps
    assert steps[-1] == "done"
    Path("bad.py").write_text("raise ValueError('why')\n")
    _, _, err = run(capfd, "profile bad.py:Net -v")
    assert err.splitlines()[1] == "  caused by ValueError: why"
    assert len(run(capfd, "profile bad.py:Net")[2].splitlines()) == 1


RING = """
one, two = ValueError("one"), ValueError("two")
one.__cause__, two.__cause__ = two, one
raise one
"""
"""Exceptions that are each other's cause, as extension modules leave them too."""


def test_causes_in_a_ring_are_told_once(capfd):
    Path("ring.py").write_text(RING)
    code, _, err = run(capfd, "profile ring.py:Net -v")
    assert (code, err.splitlines()[1:]) == (
        3, ["  caused by ValueError: one", "  caused by ValueError: two"]
    )  # fmt: skip
    one = ValueError("one")
    one.__cause__ = RuntimeError("two")
    one.__cause__.__cause__ = one
    assert not is_lack_of_memory(one)
    one.__cause__.__context__, one.__cause__.__cause__ = MemoryError(), None
    assert is_lack_of_memory(one)


def test_an_interruption_has_no_causes(capfd):
    Path("asked.py").write_text("raise KeyboardInterrupt from ValueError('no cause')\n")
    code, _, err = run(capfd, "profile asked.py:Net -v")
    assert (code, err.splitlines()[-1]) == (130, "tracer: interrupted")
    assert "caused by" not in err


ONE = """
    <ir_version: 8, opset_import: ["": 17]>
    one (float[n,1] x) => (float[n,1] y) <float[1,1] w = {2.0}> { y = MatMul (x, w) }"""
OF_ONE = [
    "count one.onnx",
    "count one.onnx --full-numbers",
    "diff one.onnx one.onnx",
    "interpret one.onnx --data one.npz --accumulator fp16",
    "interpret one.onnx --data one.npz --accumulator 12 --fixed 8:5/8:7",
    "whatif one.onnx --accumulator 12:13 --limit 1 --metric mse --data one.npz",
    "quantize one.onnx --calibrate one.npz --limit 1 -o q.onnx",
]


@pytest.mark.parametrize("text", OF_ONE)
def test_a_count_of_one_has_no_plural(text, capfd):
    onnx.save(onnx.parser.parse_model(ONE), "one.onnx")
    np.savez("one.npz", x=np.ones((1, 1), np.float32))
    code, out, err = run(capfd, f"{text} --notes")
    assert code == 0
    assert (
        re.findall(r"(?<![\d.,:=])\b1 (?!exceeds)(?:more |of 1 )?[A-Za-z]+[^\Ws]s\b", out + err)
        == []
    )


def test_energies_beyond_a_file_are_told_of_one_bit(tmp_path):
    file = tmp_path / "e.toml"
    file.write_text(
        'unit = "fJ"\nmul = {bits = "accumulator", table = {8 = 1}}\n'
        'add = {bits = "accumulator", polynomial = [-2, 1]}\n'
    )
    found, one = energy.find(str(file)), np.ones(1)
    with pytest.raises(InputError, match=r"says nothing of 1 bit\."):
        found.multiplication(one, one, one)
    with pytest.raises(InputError, match=r"below 0 at 1 bit\."):
        found.addition(one, one, one)
    with pytest.raises(InputError, match=r"below 0 at 1\.5 bits\."):
        found.addition(one, one, 1.5 * one)


def test_a_rule_with_one_of_a_thing_says_so():
    text = words(Accumulator(8, product_shift=1))
    assert "products lose 1 low bit (" in text
