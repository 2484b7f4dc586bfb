"""Options for narrow accumulators, of runs and of counts, and for certificates."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_args

import click

from tracer.accumulators.spec import Bias, Convention, Overflow, RoundingName, ZeroPoints
from tracer.api import _calls
from tracer.cli._command import Typed
from tracer.cli._messages import tell, tell_written
from tracer.cli._options import declared, names
from tracer.errors import UsageError, locate_errors
from tracer.support.arguments import integer, option
from tracer.support.files import check_writable, read_regular, write_atomically
from tracer.text import plural

if TYPE_CHECKING:
    from rich.console import Console

    from tracer.accumulators.spec.policy import Policy
    from tracer.accumulators.statistics.certificates import Certificate, Guarantee
    from tracer.graph.model import Model
    from tracer.inputs.feedset import FeedSet
    from tracer.records.trace import Trace

OVERFLOWS = get_args(Overflow)
BIASES = get_args(Bias)
ZERO_POINTS = get_args(ZeroPoints)
_ROUNDINGS = ", ".join(get_args(RoundingName)).replace("stochastic", "stochastic(SEED)")


_UNBROKEN = ("name", "kind")
"""Columns whose cells are never continued on a second line."""

_FEWEST_COLUMNS = 120
"""Columns of a terminal that five cells of a row fit beside each other."""

_INDENT = (0, 0, 0, 4)


def _list(context: click.Context, option: click.Parameter, chosen: bool) -> None:
    """Prints the presets and ends the command, which needs no model then.

    Raises UsageError for options of the result that a model would have.
    """
    if not chosen or context.resilient_parsing:
        return
    typed = Typed.now()
    unread = [flag for flag, _ in typed.params.values() if flag in _OF_RESULTS] if typed else []
    if unread:
        raise UsageError(
            f"--list-accumulators prints a table alone, and reads no {', '.join(unread)}",
            "Leave it out, and redirect what is printed.",
        )
    from rich.box import SIMPLE_HEAD
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from tracer.accumulators import hardware
    from tracer.accumulators.spec import kinds
    from tracer.cli._output import write_screen

    def show(console: Console) -> None:
        """Prints each preset, and below them how other accumulators are written."""
        table = Table(box=SIMPLE_HEAD, pad_edge=False, padding=(0, 1, 0, 0))
        for header in ("name", "kind", "what", "source", "status"):
            table.add_column(header, no_wrap=header in _UNBROKEN, overflow="fold")
        for preset in hardware.presets().values():
            kind = preset.accumulator.kind
            table.add_row(
                *map(Text, (preset.name, kind, preset.what, preset.source, preset.status))
            )
            if console.width < _FEWEST_COLUMNS:
                console.print(Text(f"{preset.name}: {kind}, {preset.status}"))
                for text in (preset.what, preset.source):
                    console.print(Padding(Text(text), _INDENT))
        if console.width >= _FEWEST_COLUMNS:
            console.print(table)
        console.print(
            Text(f"Other accumulators are written as {kinds.examples()}: tracer docs hardware")
        )

    write_screen(show)
    context.exit()


_GROUP = "Narrow accumulators"
_OF_RESULTS = ("--json", "--csv", "-o", "--output", "--open", "--force")


_accumulator = partial(
    option,
    "Accumulators, for all nodes or by node, operator or module: a width in bits, two levels, "
    "or a preset as x86-maddubs, e.g. 18, 'conv1=18,Gemm=two-level(16,256,32),*=17'.",
    None, group=_GROUP, reads=(), metavar="SPEC|RULES|FILE.toml", common=True,
)  # fmt: skip
_magnitude = partial(
    option, "Do not count the sign in widths: N bits hold -2^N to 2^N - 1.", None,
    group=_GROUP, is_flag=True,
)  # fmt: skip
_fixed = partial(
    option,
    "Fixed-point formats of float operands as bits:fraction bits, for activations/weights: "
    "8:5, 'conv1=16:8,*=8:5/8:7'; in 8:block(16) each 16 share an exponent.",
    None, group=_GROUP, metavar="FORMATS",
)  # fmt: skip


@dataclass
class _Widths:
    """Accumulators of a model that is not run."""

    accumulator: str | None = _accumulator()
    magnitude: bool | None = _magnitude()
    fixed: str | None = _fixed()
    operands: str | None = _calls.operands(group=_GROUP)


@dataclass
class _Sums:
    """Accumulators of runs, and certificates."""

    accumulator: str | None = _accumulator()
    list_accumulators: bool = option(
        "List the presets of processors and libraries, and exit. Needs no MODEL.", False,
        group=_GROUP, is_eager=True, expose_value=False, callback=_list,
    )  # fmt: skip
    overflow: str | None = option(
        "Effect of a sum outside the range.  [default: saturate]", None,
        group=_GROUP, reads=("choice", *OVERFLOWS),
    )  # fmt: skip
    order: str | None = option(
        "Order of additions: sequential, channelwise, positionwise, tree, chunked(32), lanes(8), "
        "sorted, maddubs, tiles(256:16), nest(ky,kx,ic), or runtime: that of onnxruntime's kernel "
        "of each node.  [default: sequential]",
        None, group=_GROUP, metavar="ORDER",
    )  # fmt: skip
    bias: str | None = option(
        "Add the bias as the first or the last term.  [default: first]", None,
        group=_GROUP, reads=("choice", *BIASES),
    )  # fmt: skip
    zero_points: str | None = option(
        "Subtract zero points from the operands before the sum, or from the sum after it.  "
        "[default: before]",
        None, group=_GROUP, reads=("choice", *ZERO_POINTS),
    )  # fmt: skip
    product_bits: int | None = option(
        "Width of products before they are added.  [default: exact]", None,
        group=_GROUP, rule=integer(),
    )  # fmt: skip
    product_shift: int | None = option(
        "Low bits of products that are rounded away before they are added.  [default: 0]", None,
        group=_GROUP, type=click.IntRange(0), metavar="BITS",
    )  # fmt: skip
    product_rounding: str | None = option(
        f"Rounding of products: {_ROUNDINGS}.  [default: half-even]",
        None, group=_GROUP, metavar="RULE",
    )  # fmt: skip
    magnitude: bool | None = _magnitude()
    fixed: str | None = _fixed()
    operands: str | None = _calls.operands(group=_GROUP)
    certificate: Path | None = option(
        "Write a certificate that no sum overflows on these inputs. Exit 1 if one does.", None,
        group=_GROUP, reads=("path",), metavar="FILE.json",
    )  # fmt: skip
    check_certificate: Path | None = option(
        "Run again, and check a certificate against model, inputs and policy, or one of tracer "
        "narrow against the weights, for any input. Exit 1 if it does not hold. Without "
        "--accumulator, the policy is the certificate's own.",
        None, group=_GROUP, reads=("path",), metavar="FILE.json",
    )  # fmt: skip


NAMES = frozenset(names(_Sums)) - {"list_accumulators"}
_ANY = 32
"""A width that every entry of a policy replaces."""


@dataclass(frozen=True, slots=True)
class AccumulatorOptions:
    """The policy, the certificate to write, and the certificate to check with its path."""

    policy: Policy
    path: Path | None = None
    checked: tuple[Path, Certificate | Guarantee] | None = None
    force: bool = False


class Witness:
    """Hashes all inputs of a run, then writes or checks its certificate."""

    _model: Model

    def __init__(self, options: AccumulatorOptions) -> None:
        from tracer.accumulators.statistics.certificates import DataHash

        self._options = options
        self._data = DataHash()

    def start(self, model: Model) -> None:
        """Takes the model of the run. Raises ThresholdError for another model or policy."""
        self._model = model
        if self._options.checked is not None:
            _, certificate = self._options.checked
            certificate.check_model(model)
            certificate.check_complete(model)
            certificate.check_policy(model, self._options.policy)

    def receive(self, feedset: FeedSet, outputs: Sequence[Any]) -> None:
        """Adds the inputs of one batch."""
        self._data.add(feedset.feeds)

    def finish(self, trace: Trace) -> None:
        """Writes or checks the certificate. Raises ThresholdError where it does not hold."""
        from tracer.accumulators.statistics.certificates import Certificate, certificate

        sums = {each.node: each for run in trace.runs for each in run.sums}
        tallies = {node: each.tally for node, each in sums.items()}
        path, policy = self._options.path, self._options.policy
        if self._options.checked is not None:
            checked, stated = self._options.checked
            if isinstance(stated, Certificate):
                stated.check(self._model, self._data, tallies, policy)
                held = f"no sum overflows on {plural(stated.inputs, 'set')} of inputs,"
            else:
                stated.check(self._model, sums, policy)
                held = "no input makes a sum overflow"
            tell(f"{checked} holds: {held} {stated.extent(self._model)}")
        if path is not None:
            proof = certificate(self._model, self._data, tallies, policy)
            write_atomically(path, proof.to_json(), self._options.force)
            extent = proof.extent(self._model)
            tell_written(path, f": nothing overflows on these inputs, {extent}")


def options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Adds `--accumulator` and its companions; the command takes `accumulating`, or None."""

    @functools.wraps(command)
    def parsed(*, sums: Mapping[str, Any], force: bool, **arguments: Any) -> Any:
        own = {name: value for name, value in sums.items() if value is not None}
        if own.get("certificate") is not None:
            check_writable(own["certificate"], force)
        _check_complete(own, {"accumulator", "check_certificate"})
        accumulating = replace(_accumulating(**own), force=force) if own else None
        return command(accumulating=accumulating, force=force, **arguments)

    return declared(_Sums, "sums")(parsed)


def _accumulating(
    accumulator: str | None = None,
    fixed: str | None = None,
    operands: str | None = None,
    certificate: Path | None = None,
    check_certificate: Path | None = None,
    magnitude: bool = False,
    **properties: Any,
) -> AccumulatorOptions:
    from tracer.accumulators.spec.accumulator import Accumulator, integer
    from tracer.accumulators.spec.policy import parse_policy

    checked = None
    if check_certificate is not None:
        from tracer.accumulators.statistics import certificates

        content = read_regular(check_certificate)
        with locate_errors(check_certificate):
            checked = check_certificate, certificates.read_certificate(content)
    if accumulator is None:
        assert checked is not None
        if fixed is not None or operands is not None or magnitude or properties:
            raise UsageError(
                "--check-certificate takes the accumulators from the certificate",
                "Set --accumulator as well, or leave out the options of accumulators.",
            )
        return AccumulatorOptions(checked[1].policy(), certificate, checked)
    if "product_rounding" in properties and "product_shift" not in properties:
        raise UsageError(
            "--product-rounding rounds nothing: products keep all of their bits",
            "Set --product-shift as well.",
        )
    convention: Convention = "magnitude" if magnitude else "twos-complement"
    like = Accumulator(_ANY, convention=convention, **properties)
    policy = parse_policy(accumulator, fixed, like, operands)
    if certificate is not None or checked is not None:
        for entry in policy.accumulators:
            if str(integer(entry.value, "certificates").order) == "runtime":
                raise UsageError(
                    "certificates name an order, not 'runtime'",
                    "Set the orders that a run with --order runtime prints: 18(order=tiles(4)).",
                )
    return AccumulatorOptions(policy, certificate, checked)


def _policy(**chosen: Any) -> Policy | None:
    own = {name: value for name, value in chosen.items() if value is not None}
    _check_complete(own, {"accumulator"})
    return _accumulating(**own).policy if own else None


def _check_complete(given: Mapping[str, Any], sufficient: Set[str]) -> None:
    """Raises UsageError for options of accumulators without an option that sets widths."""
    if given and not given.keys() & sufficient:
        raise UsageError(
            f"--{next(iter(given)).replace('_', '-')} is about narrow accumulators",
            "Set --accumulator as well.",
        )


WIDTHS = declared(_Widths, "accumulator", _policy)
"""Widths of a model that is not run; the command takes the policy as `accumulator`, or None."""
