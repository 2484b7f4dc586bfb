"""`python -m tests.card.child NAME SECONDS FILE`: runs a part, and writes how it ended."""

import faulthandler
import importlib
import sys
import time
import traceback
from pathlib import Path

from tests.card.parts import GRACE, Skipped, write


def ending_of(name, seconds):
    """Runs a part in `seconds`, those of its imports included; returns its result, or why none."""
    start = time.monotonic()
    faulthandler.enable()
    faulthandler.dump_traceback_later(seconds + GRACE - 1)  # where it is when it is ended
    try:
        part = importlib.import_module(name)
        return {"result": part.measure(seconds - (time.monotonic() - start))}
    except Skipped as reason:
        return {"skipped": str(reason)}
    except Exception as error:
        return {
            "error": f"{type(error).__name__}: {error}",
            "traceback": traceback.format_exc().splitlines(),
        }


if __name__ == "__main__":
    write(ending_of(sys.argv[1], float(sys.argv[2])), Path(sys.argv[3]))
