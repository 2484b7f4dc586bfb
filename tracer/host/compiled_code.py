"""What the code that tracer compiles for its sums uses on this machine."""

from tracer.interpreter.kernel_loading import loaded
from tracer.interpreter.numeric import parallel
from tracer.records.environment import CompiledCode


def observe() -> CompiledCode:
    """Returns the instructions, the threads of a run by default, and the folder."""
    folder = loaded("cache_folder").place()
    with parallel.threads(None):
        threads = parallel.allowed()
    return CompiledCode(
        loaded("vectors").instruction_set(), threads, None if folder is None else str(folder)
    )
