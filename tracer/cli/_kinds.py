"""Kinds of files that a command may be given, and which command or option takes each."""

from dataclasses import dataclass
from pathlib import Path

from tracer.errors import InputError

_OF_MODELS = frozenset(
    ("profile", "count", "diff", "fusions", "interpret", "quantize", "tune", "whatif", "narrow")
)


@dataclass(frozen=True)
class Kind:
    """Files with one of `suffixes`: what they are, what `commands` read them, and what to type."""

    what: str
    suffixes: tuple[str, ...]
    remedy: str
    commands: frozenset[str] = frozenset()


KINDS = (
    Kind("is a saved result", (".trace",),
         "tracer report {0} shows it, and tracer compare {0} OTHER compares times.",
         frozenset(("report", "compare"))),
    Kind("is a model", (".onnx", ".onnx.gz", ".pt2"),
         "tracer profile {0} measures it, and -o run.trace saves that for tracer report.",
         _OF_MODELS | {"compare", "bisect", "export"}),
    Kind("holds arrays", (".npz", ".npy"),
         "They go with a model: tracer profile MODEL --inputs {0}."),
    Kind("holds data", (".tar", ".parquet"),
         "They go with a model: tracer interpret MODEL --data {0}."),
    Kind("holds weights", (".pt", ".pth", ".safetensors"),
         "Name the code that they are for: tracer profile FILE.py:NAME --weights {0}."),
    Kind("holds JSON", (".json",),
         "tracer report shows a profile that onnxruntime or torch wrote. A plan of tracer tune "
         "goes with --plan, and a certificate with --check-certificate.",
         frozenset(("report",))),
    Kind("is a page that was written", (".html", ".md", ".csv", ".xlsx", ".png", ".svg"),
         "Open it as it is. tracer reads results from .trace files."),
    Kind("holds settings", (".toml",), "They go with a model: --accumulator {0}, or --energy {0}."),
    Kind("is a model of another format", (".tflite", ".h5", ".keras", ".mlmodel", ".pdmodel"),
         "Convert it to ONNX first, as tf2onnx and other converters do."),
)  # fmt: skip

_READING = frozenset[str]().union(*(kind.commands for kind in KINDS))


def kind_of(text: str) -> Kind | None:
    """Returns the kind of an existing file by the end of its name; None for any other."""
    kinds = (kind for kind in KINDS if text.lower().endswith(kind.suffixes))
    return next(kinds, None) if Path(text).is_file() else None


def refuse_other(text: str, command: str) -> None:
    """Raises InputError for a file of a kind that the command does not read.

    It names the command or the option that does.
    """
    kind = kind_of(text)
    if kind is not None and command in _READING and command not in kind.commands:
        what = f"{text} {kind.what}, which tracer {command} does not read"
        raise InputError(what, kind.remedy.format(text))
    is_model = any(Path(text).glob("*.onnx*"))
    if command in _OF_MODELS and not is_model and (Path(text) / "input_0.pb").is_file():
        what = f"{text} is a test_data_set, which tracer {command} does not read as a model"
        raise InputError(what, f"Its values go with a model: --inputs {text}.")
