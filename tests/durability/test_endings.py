"""Commands that are killed, or whose disk is full: a whole file or none, and nothing left."""

import resource
import subprocess
import sys

import pytest

from tests.durability import campaign
from tests.durability.commands import COMMANDS, LENET
from tests.durability.killing import VICTIMS, Place

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(sys.platform != "linux", reason="tested on Linux"),
]


@pytest.fixture
def place(tmp_path):
    return Place(tmp_path)


def test_a_command_killed_at_any_moment_leaves_the_file_before_or_a_whole_one(place):
    (count,) = (command for command in COMMANDS if command.arguments[0] == "count")
    usual = campaign.undisturbed(count, place)
    assert not usual.leftovers
    found = list(campaign.kills(usual, place.path, len(VICTIMS), seed=1))
    assert [kill.victim for kill in found] == list(VICTIMS)
    assert not any(map(campaign.is_wrong, found)), campaign.table(found)


def test_the_drill_sees_half_files_and_leftovers(place):
    (count,) = (command for command in COMMANDS if command.arguments[0] == "count")
    path = place.out / count.output
    usual = campaign.Undisturbed(count, "node,index\n", 1.0, ())
    path.write_text("node,in")
    assert campaign.partial(usual, path) == "other content"
    path.write_text("")
    assert "EmptyDataError" in campaign.partial(usual, path)
    (place.out / ".tracer-1-0").touch()
    (place.tmp / "tracer-1-0").mkdir()
    (place.cache / "x.nbi.tmp.0").touch()
    assert place.leftovers(count.output) == [".tracer-1-0", "tracer-1-0", "x.nbi.tmp.0"]


def on_a_full_disk(place, nbytes, *arguments):
    """Runs a command for which every file is too large beyond some bytes."""
    return subprocess.run(
        [sys.executable, "-m", "tracer", *arguments],
        env=place.environment(),
        cwd=place.out,
        preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (nbytes, nbytes)),
        capture_output=True,
        text=True,
    )


def test_a_full_disk_loses_neither_the_other_files_nor_the_page(place):
    done = on_a_full_disk(place, 4096, "count", LENET, "-o", "n.json", "-o", "n.csv")
    assert done.returncode == 3
    assert done.stderr.splitlines() == [
        "wrote n.csv", "tracer: error: n.json: cannot be written (File too large)",
    ]  # fmt: skip
    assert "lenet.onnx" in done.stdout
    assert [path.name for path in place.out.iterdir()] == ["n.csv"]


def test_a_full_disk_of_temporary_files_is_not_blamed_on_the_model(place):
    done = on_a_full_disk(place, 20_000, "profile", LENET, "--runs", "5", "--no-roofline")
    assert done.returncode == 3
    assert done.stderr == (
        f"tracer: error: {place.tmp}: temporary files cannot be written (File too large). "
        "Make room there, or set TMPDIR to another folder.\n"
    )
    assert not any(place.tmp.iterdir())
