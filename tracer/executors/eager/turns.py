"""Records turns of a framework's model: the profiler is on in its recorded runs only."""

from collections.abc import Callable

import numpy as np

from tracer.executors.eager.calls import Calls
from tracer.executors.turns import Recorder, RunTimes
from tracer.support.timing import RunTimer


def recorder(
    plain: Callable[[], float], recorded: Callable[[int], RunTimer], calls: Calls
) -> Recorder:
    """Returns the recorder of a model.

    `recorded` makes a number of runs, adds them to `calls` and returns their times.
    """
    durations: list[float] = []

    def read() -> RunTimes:
        return RunTimes([s.path for s in calls.sites], calls.samples(), np.array(durations))

    return Recorder(plain, lambda runs: durations.extend(recorded(runs).us), read)
