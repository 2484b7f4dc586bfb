"""Which benchmarks `python -m benchmarks` starts; `test_every.py` runs them."""

from pathlib import Path
from types import SimpleNamespace

import pytest

from benchmarks import __main__ as command

NAMES = sorted(
    file.stem for file in Path("benchmarks").glob("*.py") if not file.stem.startswith("_")
)


@pytest.fixture
def started(monkeypatch):
    """The modules that were started, all with success but `parsing`."""
    modules = []

    def run(arguments):
        modules.append(arguments[-1])
        return SimpleNamespace(returncode=7 * (arguments[-1] == "benchmarks.parsing"))

    monkeypatch.setattr(command.subprocess, "run", run)
    return modules


def test_the_named_benchmarks_run_in_the_order_of_the_names(started):
    assert command.main(["startup", "counting"]) == 0
    assert started == ["benchmarks.startup", "benchmarks.counting"]


def test_without_a_name_all_run_up_to_the_first_that_fails(started):
    assert command.main([]) == 7
    expected = NAMES[: NAMES.index("parsing") + 1]
    assert started == [f"benchmarks.{name}" for name in expected]


def test_an_unknown_name_is_a_usage_error_that_lists_the_names(started, capsys):
    with pytest.raises(SystemExit) as ended:
        command.main(["startup", "warp"])
    assert ended.value.code == 2
    message = capsys.readouterr().err
    assert "no benchmark warp" in message
    assert all(name in message for name in NAMES)
    assert started == []


def test_list_prints_the_names_and_runs_nothing(started, capsys):
    assert command.main(["--list"]) == 0
    assert capsys.readouterr().out.split() == NAMES
    assert started == []
