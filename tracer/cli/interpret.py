"""`tracer interpret`: run a model in the reference interpreter and show every node.

The outputs of the model go to an .npz file, or to test_data_set folders in ONNX's own format.
"""

from __future__ import annotations

import functools
import io
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cloup

from tracer.analyzers.options import SAMPLE, ViewOptions
from tracer.api import interpret as api
from tracer.api import replay
from tracer.cli import _accumulating, _options
from tracer.cli._command import Command
from tracer.cli._messages import progress, tell, tell_written
from tracer.errors import InputError, UsageError
from tracer.support.arguments import option
from tracer.support.files import check_place, check_writable, errors_naming, write_atomically
from tracer.support.temporary import TemporaryFolder

if TYPE_CHECKING:
    from tracer.graph.model import Model
    from tracer.inputs.feedset import FeedSet
    from tracer.records.trace import Trace

_NPZ = ".npz"
_OF_RUNS = {*_options.names(api.InterpretArguments), "rtol", "atol"}
_OTHERS = ("against", "fallback", "register", "energy")


@dataclass(frozen=True, kw_only=True)
class _Arithmetic(replay.RuntimeArguments):
    check_exact: bool = option(
        "Prove that no float operation of the model rounds, so that its outputs have the same bits "
        "on every machine, and run nothing. Exit 1 if one may.",
        False, group="Runs", is_flag=True,
    )  # fmt: skip


def _tensor_output(command: Callable[..., Any]) -> Callable[..., Any]:
    """Takes the outputs for tensors out of `-o`; the command takes their path as `tensors`.

    Raises UsageError or InputError before any work for a path that cannot be written.
    """

    def holds_tensors(output: str) -> bool:
        path = Path(output)
        return path.suffix in ("", _NPZ) and output != "-" and ":" not in path.name

    @functools.wraps(command)
    def split(*, outputs: tuple[str, ...], force: bool, **arguments: Any) -> Any:
        paths = [Path(output) for output in outputs if holds_tensors(output)]
        if len(paths) > 1:
            raise UsageError(
                f"{len(paths)} places for the model's outputs", "Name one .npz file, or one folder."
            )
        tensors = paths[0] if paths else None
        if tensors is not None:
            _check_writable(tensors, force)
        tables = tuple(output for output in outputs if not holds_tensors(output))
        return command(tensors=tensors, outputs=tables, force=force, **arguments)

    return split


def _check_writable(path: Path, force: bool) -> None:
    if path.suffix == _NPZ:
        check_writable(path, force)
    elif path.exists() and not path.is_dir():
        raise InputError(f"{path}: is a file", "Name a folder, or a file that ends in .npz.")
    elif path.is_dir() and any(path.iterdir()) and not force:
        raise InputError(f"{path}: the folder is not empty", "Name another, or give --force.")
    elif not path.parent.is_dir():
        raise InputError(f"{path}: the folder {path.parent} does not exist", "Make it first.")
    else:
        check_place(path / "input_0.pb" if path.is_dir() else path)


def _choose_runtime(command: Callable[..., Any]) -> Callable[..., Any]:
    """Shows, with --as, which kernels of that runtime are replayed with equal bits.

    Raises UsageError for options of numpy's arithmetic with it, and for --anew without it. Without
    it, --optimization sets the graph that is interpreted, and --check-exact runs nothing.
    """

    @functools.wraps(command)
    def choose(*, runtime: dict[str, Any], **arguments: Any) -> Any:
        _options.refuse_unread()
        is_checked = runtime.pop("check_exact")
        if is_checked:
            why = "is for a run, and --check-exact runs nothing"
            _options.refuse_typed(_OF_RUNS, why, "Leave it out.")
        elif not arguments["options"]["against"]:
            why = "says how close values are to those that --against names"
            _options.refuse_typed({"rtol", "atol"}, why, "Give --against ort as well.")
        if runtime["runtime"] is None:
            if runtime["anew"]:
                what = "--anew is for the arithmetic of a runtime"
                raise UsageError(what, "Give --as onnxruntime as well.")
            level, accumulating = runtime["optimization"], arguments["accumulating"]
            if arguments["options"]["against"] and accumulating is not None:
                raise UsageError("--against and --accumulator together", "Leave out one of them.")
            if level and accumulating and (accumulating.path or accumulating.checked):
                what = "a certificate is for the graph of the file"
                raise UsageError(what, "Leave out --optimization, or the certificate.")
            if is_checked:
                if accumulating or arguments["tensors"] or arguments["output"].files:
                    what = "--check-exact proves, and neither runs nor writes"
                    raise UsageError(what, "Leave out accumulators and outputs.")
                return _prove_exactness(arguments["model"])
            arguments["options"]["optimization"] = level
            return command(**arguments)
        from tracer.records.bits import Replayed

        options, output = arguments["options"], arguments["output"]
        shown = output.options
        plain = ViewOptions(top=shown.top, notes=shown.notes, redact=shown.redact)
        others = [arguments[name] for name in ("accumulating", "tensors", "cluster")]
        if any((*others, *(options[name] for name in _OTHERS))) or shown != plain:
            raise UsageError(
                f"--as {runtime['runtime']} compares bits, and nothing else",
                "Leave out --accumulator, --against, --fallback and options of the table.",
            )
        output.check(Replayed)
        names = (*_options.names(replay.ReplayArguments), "inputs")
        chosen = {name: options[name] for name in {*names} & options.keys()} | {
            name: value for name, value in runtime.items() if value is not None
        }
        with progress() as report:
            result = replay.replay(
                arguments["model"], limits=arguments["limits"], progress=report, **chosen
            )
        output.emit(result)
        return 0

    return choose


def _prove_exactness(model: _options.ModelSource) -> int:
    """Tells what is proved of the float operations of the model. Returns the exit code."""
    from tracer.accumulators.statistics.certificates import prove_exact
    from tracer.analyzers.views.narrowed import exactness
    from tracer.exporters.subject import open_subject

    proved = prove_exact(open_subject(model))
    for line in exactness(proved):
        tell(line)
    return int(not all(proved.outputs.values()))


@cloup.command(cls=Command)
@_options.SUBJECT
@_options.declared(api.InterpretArguments)
@_options.declared(_Arithmetic, "runtime")
@_options.TOLERANCE
@_options.WORKERS
@_options.RUN_LIMITS
@_tensor_output
@_accumulating.options
@_options.SUMS_VIEW
@_choose_runtime
def command(
    model: _options.ModelSource,
    options: dict[str, Any],
    tolerance: _options.Tolerance,
    cluster: str | None,
    limits: _options.Limits,
    tensors: Path | None,
    accumulating: _accumulating.AccumulatorOptions | None,
    output: _options.Output,
) -> int:
    """Run a model in numpy and show the values of every node.

    -o FILE.npz, or -o FOLDER, writes the outputs of the model; other files are tables.

    --against ort compares every node with onnxruntime without optimisation, on the same inputs.
    A second run gives each node the values that onnxruntime has: an error is then its own, and not
    the rounding of the nodes before it. The command names the first node whose own error exceeds
    the tolerance, and exits with 1. With --rtol it does so for any error.

    A model with operators that the interpreter lacks is refused; --fallback ort computes their
    nodes in onnxruntime.

    --accumulator computes sums as hardware with narrow accumulators does. The table shows how
    often sums overflow and which widths suffice, over all inputs or all samples of --data. Without
    it, the model runs on the first batch alone. With --by sample, samples run one at a time, and
    the table shows which of them overflow.

    --optimization interprets the graph that onnxruntime makes of the model: with --accumulator
    x86-maddubs, integer networks then have the bits of a processor with AVX2 alone. --as
    onnxruntime computes each kernel by the rule that probes reveal, and compares all bits.

    \b
    Examples:
      tracer interpret model.onnx
      tracer interpret model.onnx --as onnxruntime --optimization none --threads 1
      tracer interpret model.onnx --against ort --rtol 1e-4
      tracer interpret int8.onnx --accumulator 16 --inputs images.npz -o sums.png
      tracer interpret int8.onnx --accumulator 16 --data digits --by sample -o overflow.csv
      tracer interpret int8.onnx --accumulator 24 --data digits --certificate safe.json
      tracer interpret int8.onnx --accumulator x86-maddubs --optimization all --data digits
    """
    from tracer.records.trace import Trace

    output.check(Trace)
    writer, witness = None if tensors is None else _Writer(tensors, output.force), None
    if accumulating is not None and (accumulating.path or accumulating.checked):
        witness = _accumulating.Witness(accumulating)
    with progress() as report:
        trace = api.interpret(
            model, warmup=None, tolerance=tolerance, limits=limits, progress=report, note=tell,
            accumulator=None if accumulating is None else accumulating.policy, cluster=cluster,
            by_sample=output.options.by == SAMPLE,
            receivers=[each for each in (writer, witness) if each is not None], **options,
        )  # fmt: skip
    if writer is not None:
        writer.finish()
    output.emit(trace)
    if witness is not None:
        witness.finish(trace)
    return _verdict(trace, tolerance) if options["against"] else 0


def _verdict(trace: Trace, tolerance: _options.Tolerance) -> int:
    """Tells whether the model agrees with the reference. Returns the exit code."""
    from tracer.analyzers.views.trace.run_tables import verdict

    text, agrees = verdict(trace.runs[0], tolerance)
    tell(text)
    return int(not agrees)


class _Writer:
    """Writes the outputs of all batches, joined in one .npz or each as a test_data_set.

    One batch fills the folder itself; several fill test_data_set folders in it.
    """

    _model: Model

    def __init__(self, path: Path, force: bool) -> None:
        self._path, self._force = path, force
        self._count = 0
        self._spilled: TemporaryFolder | None = None
        self._held: list[tuple[FeedSet, Mapping[str, Any]]] = []

    def start(self, model: Model) -> None:
        """Takes the model of the run."""
        self._model = model

    def receive(self, feedset: FeedSet, outputs: Sequence[Any]) -> None:
        """Adds the outputs of the model, in their order, for one batch."""
        names = (value.name for value in self._model.graph.output)
        self._held.append((feedset, dict(zip(names, outputs, strict=True))))
        self._count += 1
        if self._path.suffix != _NPZ and self._count > 1:  # to disk, so that memory stays flat
            for index, held in enumerate(self._held, self._count - len(self._held)):
                self._folder(self._place() / f"test_data_set_{index}", *held)
            self._held.clear()

    def finish(self) -> None:
        """Writes the rest. Raises InputError for outputs that the file cannot hold."""
        if self._path.suffix == _NPZ:
            write_atomically(self._path, self._npz(), self._force)
        else:
            if self._count == 1:
                self._folder(self._place(), *self._held[0])
            made = self._place()
            with errors_naming(self._path):
                if not (self._force and self._path.exists() and any(self._path.iterdir())):
                    made.replace(self._path)  # an error, if it has files by then
                else:  # files in a folder that is there are replaced one by one
                    for file in sorted(made.rglob("*.pb")):
                        place = self._path / file.relative_to(made)
                        place.parent.mkdir(exist_ok=True)
                        file.replace(place)
        tell_written(self._path)

    def _place(self) -> Path:
        """Returns a folder beside the one that is asked for, which gets its name at the end."""
        if self._spilled is None:
            self._spilled = TemporaryFolder(self._path.resolve().parent)
        made = self._spilled.path / "made"  # with the permissions of any new folder
        made.mkdir(exist_ok=True)
        return made

    def _folder(self, path: Path, feedset: FeedSet, values: Mapping[str, Any]) -> None:
        from tracer.inputs.feedset import write_test_data

        known = {**feedset.feeds, **values}
        write_test_data(path, self._model.inputs, self._model.graph.output, known)

    def _npz(self) -> bytes:
        """Returns the outputs of all batches, joined along the first axis."""
        import numpy as np

        values = [values for _, values in self._held]
        try:
            joined = values[0] if self._count == 1 else {
                name: np.concatenate([each[name] for each in values]) for name in values[0]
            }  # fmt: skip
        except ValueError as error:
            raise InputError(
                f"{self._path}: outputs of {self._count} batches cannot be joined ({error})",
                "Write a folder, with a test_data_set for each batch.",
            ) from error
        for name, value in joined.items():
            if not isinstance(value, np.ndarray) or value.dtype.hasobject:
                raise InputError(
                    f"{self._path}: output '{name}' is not a tensor of numbers, as an .npz needs",
                    "Write a test_data_set folder.",
                )
        stream = io.BytesIO()
        np.savez(stream, allow_pickle=False, **joined)
        return stream.getvalue()
