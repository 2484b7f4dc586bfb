"""The parts of a run on a card: their order, and what they share.

A part is a module `tests/card/NAME.py` with

    SECONDS: float = 40
    def measure(seconds: float) -> dict[str, object]: ...

`SECONDS` is what it wants at most, and `measure` may take `seconds`. It returns what JSON holds,
with numbers of numpy if it likes, and raises `Skipped` where the machine lacks something.
"""

import json
import math
import os
import traceback
from pathlib import Path

import numpy as np

PARTS = ("machine", "times", "peaks", "pages", "compare", "products", "network", "provider")
"""Names of the parts, in the order in which they run."""
COMMITTED = Path(__file__).with_name("card.json")
"""What was measured on a card."""
GRACE = 10.0
"""Seconds that a part may take beyond its share before it is ended."""
DEVICE = "TRACER_CARD_DEVICE"
KEPT = "TRACER_CARD_KEPT"
"""Variables of a part's process: the name of its device, and the file of what it keeps."""
ONNXRUNTIME = "TRACER_CARD_ONNXRUNTIME"
"""The variable of a folder with onnxruntime-gpu, which the part `provider` alone imports."""


_LINES = 6
"""Levels of dictionaries that have lines of their own in a file."""


class Skipped(Exception):  # noqa: N818
    """The machine lacks what a part needs: the message says what."""


def device():
    """Returns the device that parts measure, in torch's words: `cuda`, or `cpu` without a card."""
    return os.environ.get(DEVICE) or ("cuda" if has_card() else "cpu")


def has_card():
    """Returns whether torch is installed and finds a card with CUDA."""
    try:
        import torch
    except ImportError:
        return False
    return torch.cuda.is_available()


def attempt(measure, *arguments):
    """Returns what `measure` returns, or why it failed: other measurements of a part go on."""
    try:
        return measure(*arguments)
    except Exception as error:
        lines = traceback.format_exc().splitlines()
        return {"error": f"{type(error).__name__}: {error}", "traceback": lines}


def keep(values):
    """Keeps what a part has measured so far, for a part that is ended before it returns."""
    if KEPT in os.environ:
        write({"result": values}, Path(os.environ[KEPT]))


def write(document, path):
    """Writes JSON in one step: whoever reads the file meets the old or the new one, whole."""
    beside = path.with_name(f"{path.name}.{os.getpid()}")
    beside.write_text(_text(_plain(document)) + "\n", encoding="utf-8")
    beside.replace(path)


def _text(value, depth=0):
    """JSON with a line for each entry of the outer dictionaries, and for each of their values."""
    if not isinstance(value, dict) or not value or depth == _LINES:
        return json.dumps(value)
    margin = " " * (depth + 1)
    lines = (f"{margin}{json.dumps(key)}: {_text(each, depth + 1)}" for key, each in value.items())
    return "{\n" + ",\n".join(lines) + "\n" + margin[1:] + "}"


def _plain(value):
    """Numbers of numpy as Python's, keys as text, and as text what JSON has no word for."""
    match value:
        case None | bool() | int() | str():
            return value
        case float():
            return value if math.isfinite(value) else str(value)
        case dict():
            return {str(key): _plain(each) for key, each in value.items()}
        case list() | tuple():
            return [_plain(each) for each in value]
        case np.ndarray() | np.generic():
            return _plain(value.tolist())
    return str(value)
