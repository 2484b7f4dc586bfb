"""Counts the files of the product that a call enters: `python -m tests.house.walks profile`."""

import sys
import threading
from pathlib import Path

import tracer

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "models" / "lenet"
_IS_FUNCTION = 1
"""Flag of a code object with local variables of its own: bodies of classes have none."""


def profile():
    tracer.profile(MODELS / "lenet.onnx", runs=5, in_process=True)


def count():
    tracer.count(MODELS / "lenet.onnx", in_process=True)


def what_if():
    tracer.what_if(
        MODELS / "lenet.int8.onnx", "18:22", "digits", data_dir=ROOT / "data", in_process=True
    )


CALLS = {call.__name__: call for call in (profile, count, what_if)}


def files_entered(call):
    """The files whose functions run during a call, apart from what imports run."""
    product, entered = str(ROOT / "tracer") + "/", set()

    def see(frame, event, argument):
        code = frame.f_code
        if event != "call" or not code.co_filename.startswith(product):
            return
        if code.co_name == "<module>" or not code.co_flags & _IS_FUNCTION:
            return
        if not _is_importing(frame, product):
            entered.add(code.co_filename.removeprefix(product))

    threading.setprofile(see)
    sys.setprofile(see)
    try:
        call()
    finally:
        sys.setprofile(None)
        threading.setprofile(None)
    return sorted(entered)


def _is_importing(frame, product):
    """Whether a module of the product is being imported by one of the callers."""
    while (frame := frame.f_back) is not None:
        code = frame.f_code
        if code.co_name == "<module>" and code.co_filename.startswith(product):
            return True
    return False


if __name__ == "__main__":
    print(*files_entered(CALLS[sys.argv[1]]), sep="\n")
