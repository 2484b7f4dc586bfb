"""Commands that run onnxruntime meet hostile models, each as a process under its supervisor.

`python -m tests.hostile` does so with all commands and all models, and looks at time as well.
"""

import pytest

from tests.hostile import attributes, bombs, declared, large, structure  # noqa: F401 - fill CASES
from tests.hostile.commands import COMMANDS, meet, warmed_up
from tests.hostile.corpus import CASES, ENDLESS
from tests.hostile.trial import BYTES, Warm

pytestmark = pytest.mark.nightly

RUNNING = [each for each in COMMANDS if each.name in ("profile", "fusions", "compare", "report")]
SOME = [*list(CASES)[::16], "a Loop without end", "an empty input of Sum"]


@pytest.fixture(scope="module")
def warm(tmp_path_factory):
    with Warm(tmp_path_factory.mktemp("cache")) as process:
        warmed_up(process, RUNNING)
        yield process


@pytest.mark.long
@pytest.mark.parametrize("name", SOME)
def test_commands_end_as_they_should(name, warm):
    # each command that runs an endless model takes ten seconds of a processor: one is enough here
    running = [each for each in RUNNING if each.name == "profile"] if name in ENDLESS else RUNNING
    for command, outcome, faults, _ in meet(warm, name, running):
        assert not faults, (command.name, outcome)
        assert outcome.peak < BYTES, (command.name, outcome)
