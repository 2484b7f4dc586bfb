"""One allocation, or one write, of a command fails: a named error, and nothing half-written.

`python -m tests.durability.faults` does so with all commands, until none fails.
"""

import sys

import pytest

from tests.durability import faults
from tests.durability.commands import COMMANDS
from tests.durability.killing import Place, finished

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.skipif(
        sys.platform != "linux" or faults.compiler() is None, reason="needs a C compiler, on Linux"
    ),
]
(COUNT,) = (command for command in COMMANDS if command.arguments[0] == "count")


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    place = Place(tmp_path_factory.mktemp("faults"))
    faults.compile_sources()
    finished(COUNT, place)
    return place


@pytest.fixture(scope="module")
def shim(place):
    return faults.library(place.path)


@pytest.mark.parametrize("number", [1, 2, 64, 2048, 16384])
def test_an_allocation_that_fails_is_one_error(number, place, shim):
    fault = faults.failing(COUNT, "allocation", number, place, shim)
    assert fault.came and not fault.wrong, fault


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_write_that_fails_is_one_error(number, place, shim):
    fault = faults.failing(COUNT, "write", number, place, shim)
    assert fault.came and not fault.wrong, fault
    assert fault.code in (0, 3)
