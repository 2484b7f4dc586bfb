"""Narrow accumulators on the command line: their options, and a run with them."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from analyzers.grouping import GROUPINGS
from tracer.errors import UsageError

if TYPE_CHECKING:
    from tracer.interpreter.arithmetic.policy import Policy

OVERFLOWS = ("saturate", "symmetric", "wrap", "zero", "error")
BIASES = ("first", "last")

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
    click.option("--product-bits", type=int, default=None, metavar="BITS",
                 help="Bring products into this width first  [default: exact]"),
    click.option("--magnitude", is_flag=True, default=None,
                 help="Widths do not count the sign: B bits hold -2^B to 2^B - 1."),
    click.option("--fixed", default=None, metavar="FORMATS",
                 help="Fixed-point numbers for the floats of a graph, bits:fraction bits, for "
                      "activations/weights: 8:5, 'conv1=16:8,*=8:5/8:7'."),
    click.option("--by", type=click.Choice(tuple(GROUPINGS)), default=None,
                 help="Fold rows by operator or module."),
    click.option("--top", type=click.IntRange(min=0), default=None,
                 help="Rows to show; 0 for all  [default: 20]"),
)  # fmt: skip
_NAMES = frozenset({
    "accumulator", "overflow", "order", "bias", "product_bits", "magnitude", "fixed", "by", "top",
})  # fmt: skip
_ANY = 32
"""A width that every entry of a policy replaces."""


@dataclass(frozen=True, slots=True)
class Accumulating:
    """What `--accumulator` and its companions ask for: the policy, and what of it to show."""

    policy: Policy
    by: str
    top: int | None

    def run(
        self,
        model: Path,
        asked: Mapping[str, Any],
        threads: int,
        outputs: Sequence[str],
        as_json: bool,
        force: bool,
    ) -> None:
        """Run the model, and show and write what was counted; `asked` is for `api.interpret`."""
        from analyzers.views import ViewOptions
        from tracer import api
        from tracer.cli import _output, _progress, _values
        from tracer.executors.reference import Options

        tables = [output for output in outputs if not _values.named(output)]
        place = _values.place([output for output in outputs if _values.named(output)], force)
        shown = _output.Output(
            _output.targets(tables, as_json, force=force), ViewOptions(self.by, self.top)
        )
        writer = None if place is None else _values.Writer(place, api.open_model(model))
        with _progress.progress() as report:
            trace = api.interpret(
                model,
                accumulator=self.policy,
                options=Options(threads=threads),
                progress=report,
                receive=None if writer is None else writer.receive,
                **asked,
            )
        if writer is not None:
            writer.finish()
        shown.emit(trace)


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
    from tracer.interpreter.arithmetic import orders
    from tracer.interpreter.arithmetic.accumulator import Accumulator
    from tracer.interpreter.arithmetic.policy_text import read

    by, top, fixed = said.pop("by", "node"), said.pop("top", None), said.pop("fixed", None)
    if said.pop("magnitude", False):
        said["convention"] = "magnitude"
    if "order" in said:
        said["order"] = orders.named(said["order"])
    return Accumulating(read(accumulator, fixed, Accumulator(_ANY, **said)), by, top)
