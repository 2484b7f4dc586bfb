"""Narrow accumulators on the command line: their options, and a run with them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzers.options import GROUPINGS, ViewOptions, refuse_depth
from tracer.cli._options import DEPTH
from tracer.cli._types import PathName
from tracer.errors import UsageError
from tracer.support.files import check_writable, write_atomically

if TYPE_CHECKING:
    from tracer.accumulators.spec.policy import Policy
    from tracer.cli._output import Output
    from tracer.graph.model import Model
    from tracer.inputs.feedset import FeedSet
    from tracer.records.trace import Trace

OVERFLOWS = ("saturate", "symmetric", "wrap", "zero", "error")
BIASES = ("first", "last")
ZERO_POINTS = ("before", "after")

_OPTIONS = (
    click.option("--accumulator", default=None, metavar="BITS|RULES|FILE.toml",
                 help="Make every sum in an accumulator of so many bits, or by node, operator or "
                      "module: 'conv1=18,Gemm=20,*=17'."),
    click.option("--overflow", type=click.Choice(OVERFLOWS), default=None,
                 help="What a sum beyond the range becomes  [default: saturate]"),
    click.option("--order", default=None, metavar="ORDER",
                 help="In which order terms are added: sequential, channelwise, tree, chunked(32), "
                      "lanes(8), sorted, maddubs  [default: sequential]"),
    click.option("--bias", type=click.Choice(BIASES), default=None,
                 help="When the bias is added  [default: first]"),
    click.option("--zero-points", type=click.Choice(ZERO_POINTS), default=None,
                 help="When zero points are taken off: of the operands, or of the sum of operands "
                      "as they are stored  [default: before]"),
    click.option("--product-bits", type=int, default=None, metavar="BITS",
                 help="Bring products into this width first  [default: exact]"),
    click.option("--magnitude", is_flag=True, default=None,
                 help="Widths do not count the sign: B bits hold -2^B to 2^B - 1."),
    click.option("--fixed", default=None, metavar="FORMATS",
                 help="Fixed-point numbers for the floats of a graph, bits:fraction bits, for "
                      "activations/weights: 8:5, 'conv1=16:8,*=8:5/8:7'."),
    click.option("--certificate", type=PathName(), default=None, metavar="FILE.json",
                 help="Write a certificate that on these inputs nothing overflows; if something "
                      "does, the exit code is 1."),
    click.option("--by", type=click.Choice(tuple(GROUPINGS)), default=None,
                 help="Fold rows by operator, module or source line."),
    DEPTH,
    click.option("--top", type=click.IntRange(min=0), default=None,
                 help="Rows to show; 0 for all  [default: 20]"),
)  # fmt: skip
_NAMES = frozenset({
    "accumulator", "overflow", "order", "bias", "zero_points", "product_bits", "magnitude", "fixed",
    "certificate", "by", "depth", "top",
})  # fmt: skip
_ANY = 32
"""A width that every entry of a policy replaces."""


@dataclass(frozen=True, slots=True)
class Accumulating:
    """What `--accumulator` and its companions ask for: the policy, and what of it to show."""

    policy: Policy
    view: ViewOptions
    certificate: Path | None

    def run(
        self,
        model: Path,
        asked: Mapping[str, Any],
        threads: int,
        outputs: Sequence[str],
        as_json: bool,
        force: bool,
    ) -> None:
        """Run the model, and show and write what was counted; `asked` is for `api.interpret`.

        Raises ThresholdError at the end where a certificate is wanted and cannot be given.
        """
        from tracer.api.interpret import interpret
        from tracer.cli import _progress, _values
        from tracer.executors.reference.executor import ReferenceSettings
        from tracer.graph.loading import open_model

        shown, place = self._targets(outputs, as_json, force)
        opened = open_model(model)
        writer = None if place is None else _values.Writer(place, opened)
        witness = None if self.certificate is None else _Witness(opened, self.certificate)
        receivers = [each.receive for each in (writer, witness) if each is not None]
        with _progress.progress() as report:
            trace = interpret(
                model,
                accumulator=self.policy,
                options=ReferenceSettings(threads=threads),
                progress=report,
                receive=lambda feedset, made: [to(feedset, made) for to in receivers],
                **asked,
            )
        if writer is not None:
            writer.finish()
        shown.emit(trace)
        if witness is not None:
            witness.finish(trace)

    def _targets(
        self, outputs: Sequence[str], as_json: bool, force: bool
    ) -> tuple[Output, Path | None]:
        """Where the tables and where the model's outputs go, checked before any work."""
        from tracer.cli import _output, _values
        from tracer.records import trace

        tables = [output for output in outputs if not _values.named(output)]
        place = _values.place([output for output in outputs if _values.named(output)], force)
        if self.certificate is not None:
            check_writable(self.certificate, force)
        output = _output.Output(self.view, (*tables, *(["json:-"] if as_json else [])), force)
        output.check(trace.Trace)
        return output, place


class _Witness:
    """Sees all inputs, and certifies that nothing overflowed on them."""

    def __init__(self, model: Model, path: Path) -> None:
        from tracer.accumulators.statistics.certificate import Data

        self._model = model
        self._path = path
        self._data = Data()

    def receive(self, feedset: FeedSet, outputs: Sequence[Any]) -> None:
        """Take in the inputs of one batch."""
        self._data.add(feedset.feeds)

    def finish(self, trace: Trace) -> None:
        """Write the certificate, and say so. Raises ThresholdError where something overflowed."""
        from tracer.accumulators.statistics.certificate import certificate

        tallies = {sums.node: sums.tally for run in trace.runs for sums in run.sums}
        given = certificate(self._model, self._data, tallies)
        write_atomically(self._path, given.to_json())
        click.echo(f"wrote {self._path}: nothing overflows on these inputs", err=True)


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """`--accumulator` and what goes with it, handed to the command as one, or as None."""

    @functools.wraps(command)
    def parsed(**given: Any) -> Any:
        own = {name: value for name, value in given.items() if name not in _NAMES}
        said = {n: v for n, v in given.items() if n in _NAMES and v is not None}
        accumulator = said.pop("accumulator", None)
        if accumulator is None and said:
            raise UsageError(
                f"--{next(iter(said)).replace('_', '-')} is about narrow accumulators",
                "Give --accumulator as well.",
            )
        return command(
            accumulating=None if accumulator is None else _accumulating(accumulator, said), **own
        )

    for option in reversed(_OPTIONS):
        parsed = option(parsed)
    return parsed


def _accumulating(accumulator: str, said: dict[str, Any]) -> Accumulating:
    from tracer.accumulators.spec import orders
    from tracer.accumulators.spec.accumulator import Accumulator
    from tracer.accumulators.spec.policy_text import read

    view = ViewOptions(
        by=said.pop("by", "node"), top=said.pop("top", None), depth=said.pop("depth", None)
    )
    refuse_depth(view.by, view.depth)
    fixed, certificate = said.pop("fixed", None), said.pop("certificate", None)
    if said.pop("magnitude", False):
        said["convention"] = "magnitude"
    if "order" in said:
        said["order"] = orders.named(said["order"])
    return Accumulating(read(accumulator, fixed, Accumulator(_ANY, **said)), view, certificate)
