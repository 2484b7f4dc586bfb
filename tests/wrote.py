"""What may be wrong with the text of a command, whatever it was about."""

import re

_CRASHED = 5
_ERRORS = {0: (0,), 1: (0, 1)}
"""Lines of errors by exit code; those of other codes have one."""
_LONGEST = len("tracer: ") + 500
_ERROR = re.compile(r"tracer: (?:internal )?error: ")
_UNSEEN = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")
"""Control characters other than line breaks, and changes of direction."""
_OTHERS = re.compile(
    r"Traceback|Warning\b|Exception ignored|\[[A-Z]:onnxruntime|^ +at |terminate called",
    re.MULTILINE,
)
"""What libraries write."""


def errors(err):
    """The lines of standard error that are errors of tracer."""
    return [line for line in err.splitlines() if _ERROR.match(line)]


def faults(out, err, code):
    """What is wrong with both streams, in words, of a command with this exit code.

    A failure is one line; 1 says that something differs, which a table may tell. A library that
    crashes may say why before tracer does.
    """
    count, crashed = len(errors(err)), code == _CRASHED
    wrong = {
        f"{count} lines of errors": count not in _ERRORS.get(code, (1,)),
        "a line of others": not crashed and _OTHERS.search(err),
        "a long line": any(len(line) > _LONGEST for line in err.splitlines()),
        "control characters": _UNSEEN.search(err + out),
    }
    return [fault for fault, is_so in wrong.items() if is_so]
