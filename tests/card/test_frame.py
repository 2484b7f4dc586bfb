"""The frame of `python -m tests.card`: parts that measure, fail, stay away, or never end."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

from tests.card import parts
from tests.card.__main__ import main, run_part, wanted_seconds
from tests.card.machine import card as read_card

SOURCES = {
    "measuring": "SECONDS: float = 30\nimport numpy as np\n"
    "def measure(seconds):\n    return {'seconds': seconds, 'sum': np.float32(3), 'nan': np.nan}\n",
    "raising": "SECONDS = 5\ndef measure(seconds):\n    return 1 / 0\n",
    "absent": "from tests.card.parts import Skipped\n"
    "def measure(seconds):\n    raise Skipped('no fp8 here')\n",
    "unending": "import time, subprocess\nfrom tests.card.parts import keep\n"
    "def measure(seconds):\n    child = subprocess.Popen(['sleep', '600'])\n"
    "    keep({'child': child.pid})\n    time.sleep(600)\n",
    "dying": "import os\n"
    "def measure(seconds):\n    print('last words', flush=True)\n    os.abort()\n",
    "broken": "import no_such_package\n",
    "seeing": "from tests.card import parts\n"
    "def measure(seconds):\n    return {'device': parts.device()}\n",
}


@pytest.fixture
def sources(tmp_path, monkeypatch):
    """Parts in a folder of the path, under names that no installed package has."""
    folder = tmp_path / "trial_parts"
    folder.mkdir()
    for name, source in SOURCES.items():
        (folder / f"{name}.py").write_text(source)
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.environ.get('PYTHONPATH', '')}")
    monkeypatch.syspath_prepend(str(tmp_path))
    return tmp_path


def _run(sources, *names, minutes=5.0):
    output = sources / "card.json"
    asked = [word for name in names for word in ("--part", f"trial_parts.{name}")]
    assert main([*asked, "--minutes", str(minutes), "--device", "cpu", "-o", str(output)]) == 0
    return json.loads(output.read_text())["parts"], (sources / "card.log").read_text()


@pytest.mark.nightly
def test_parts_end_each_in_its_way(sources, capsys):
    endings, log = _run(sources, "measuring", "raising", "absent", "dying", "broken", "seeing")
    assert endings["measuring"]["result"]["sum"] == 3
    assert endings["measuring"]["result"]["nan"] == "nan"  # JSON has no word for it
    assert 0 < endings["measuring"]["result"]["seconds"] <= 30
    assert endings["raising"]["error"] == "ZeroDivisionError: division by zero"
    assert "return 1 / 0" in "".join(endings["raising"]["traceback"])
    assert endings["absent"]["skipped"] == "no fp8 here" and "error" not in endings["absent"]
    assert endings["dying"]["error"].startswith("the process ended with -6") and "last words" in log
    assert endings["broken"]["error"].startswith("ModuleNotFoundError")
    assert endings["seeing"]["result"] == {"device": "cpu"}
    lines = capsys.readouterr().out.splitlines()
    assert [line.split()[0] for line in lines[1:]] == list(endings)
    assert lines[0] == "no card" or parts.has_card()


def test_a_part_that_does_not_end_is_ended_with_its_children(sources):
    ending = run_part("trial_parts.unending", 3.0, "cpu", sources / "log", grace=0)
    assert ending["error"] == "ended after 3 s" and ending["seconds"] < 60
    child = ending["result"]["child"]  # was kept
    for _ in range(200):
        if not _is_running(child):
            break
        time.sleep(0.05)
    assert not _is_running(child)


def _is_running(pid):
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_seconds_are_shared_by_what_parts_want(sources):
    assert wanted_seconds("trial_parts.measuring") == 30
    assert wanted_seconds("trial_parts.raising") == 5
    assert wanted_seconds("trial_parts.broken") == 1  # it says nothing, and was not imported
    endings, _ = _run(sources, "measuring", "raising", minutes=0.2)  # 12 s for a wish of 35
    assert endings["measuring"]["result"]["seconds"] <= 12 * 30 / 35


def test_a_part_alone_leaves_what_others_measured(sources):
    _run(sources, "measuring")
    endings, _ = _run(sources, "absent")
    assert endings["measuring"]["result"]["sum"] == 3 and "skipped" in endings["absent"]


def test_a_file_is_written_whole(tmp_path):
    path = tmp_path / "card.json"
    parts.write({"a": 1}, path)
    parts.write({"b": np.arange(3), 4: (np.float64("inf"), None, path)}, path)
    assert json.loads(path.read_text()) == {"b": [0, 1, 2], "4": ["inf", None, str(path)]}
    assert list(tmp_path.iterdir()) == [path]


def test_the_card_is_what_nvidia_smi_says(tmp_path):
    program = tmp_path / "nvidia-smi"
    answer = (
        "Card X, 81559 MiB, 580.1, 9.0, 345 MHz, 2619 MHz, 1980 MHz, 2619 MHz, 700.00 W, 31, "
        "Enabled, Disabled, Enabled"
    )
    program.write_text(f"#!/bin/sh\necho '{answer}'\n")
    program.chmod(0o755)
    answer = read_card(str(program))
    assert answer["name"] == "Card X" and answer["compute_cap"] == "9.0"
    assert answer["clocks.max.sm"] == "1980 MHz" and answer["persistence_mode"] == "Enabled"
    program.write_text("#!/bin/sh\nexit 9\n")
    assert read_card(str(program)) is None and read_card(str(tmp_path / "none")) is None


@pytest.mark.nightly
def test_the_machine_is_described(tmp_path):
    output = tmp_path / "card.json"
    command = [sys.executable, "-m", "tests.card", "--part", "machine", "-o", str(output)]
    subprocess.run(command, check=True, timeout=120)
    machine = json.loads(output.read_text())["parts"]["machine"]["result"]
    assert machine["packages"]["numpy"] == np.__version__
    assert machine["cpus_allowed"] == len(os.sched_getaffinity(0))
