"""Makes a network fit narrow accumulators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from tracer.api import _calls
from tracer.support.arguments import (
    FLAG,
    TEXT,
    Rule,
    amount,
    either,
    integer,
    maybe,
    option,
    several,
)

if TYPE_CHECKING:
    from tracer.exporters.subject import ModelSource
    from tracer.narrowing.requirement import Guarantee
    from tracer.records.transformed import Narrowed

_SUMS, _SCORES = "Accumulators", "Accuracy and energy"
_WIDTHS = Rule(
    "widths, as 16, '12:20', 'conv1=18,*=16' or [14, 16], or a preset",
    either(integer(), TEXT, several(integer())).holds,
)


@dataclass(frozen=True)
class NarrowArguments(_calls.Contained):
    """The arguments of `narrow`."""

    model: ModelSource
    bits: int | str | Sequence[int] | None = option(
        "Width that all sums must fit: 16. 'conv1=18,*=16' sets it by node, operator or module. "
        "12:20 tries each width, and keeps the narrowest within the budget. x86-maddubs, or any "
        "preset, changes what overflows in the registers of that machine.",
        group=_SUMS, rule=maybe(_WIDTHS), flag="--accumulator --bits --for", metavar="WIDTHS",
        reads=(), common=True, typed=None,
    )  # fmt: skip
    data: _calls.Data = _calls.data(group=_calls.INPUT)
    _: KW_ONLY
    exact: bool = option(
        "Instead of a width: powers of two for all scales, so that no float operation rounds, and "
        "outputs have the same bits on every machine.", False,
        group=_SUMS, rule=FLAG, is_flag=True, common=True,
    )  # fmt: skip
    guarantee: Guarantee = option(
        "Inputs whose sums must fit: any, or those of the data and sums a quarter larger. "
        "Overflows on the test data are reported.",
        "any-input", group=_SUMS, rule=TEXT, reads=("choice", "any-input", "this-data"),
    )  # fmt: skip
    tile: int | None = option(
        "Terms that are summed in a register of --bits, as hardware of two levels does; a register "
        "of 32 bits adds the sums.  [default: all terms]",
        None, group=_SUMS, metavar="N", common=True,
    )  # fmt: skip
    weight_bits: int | None = option(
        "Bits, 2 to 8, that weights are rounded to before anything else.  [default: those of the "
        "model]",
        None, group=_SUMS, rule=maybe(integer(2, 8)), metavar="N", common=True,
    )  # fmt: skip
    budget: float = option(
        "Accuracy that may be lost, in percentage points or the metric's unit.", 1.0,
        group=_SUMS, rule=amount("points"), common=True,
    )  # fmt: skip
    limit: int | None = option(
        "Samples of the training split to fit layers on.", 512, group=_calls.INPUT
    )
    data_dir: str | Path = _calls.data_dir(group=_calls.INPUT)
    batch: int = _calls.samples_per_inference(32, group=_calls.INPUT)
    test: _calls.Data | None = _calls.test("the test split of --data", _SCORES)
    test_limit: int | None = _calls.test_limit(group=_SCORES)
    metric: str | None = _calls.metric(_SCORES)
    energy: str = _calls.energy_of_sums(group=_SCORES)
    output: str | Path | None = None
    force: bool = False


@_calls.contained(NarrowArguments)
def narrow(call: NarrowArguments) -> Narrowed:
    """Changes `model` so that no input makes a sum exceed `bits` bits, and scores it.

    Weights are rounded again, and a layer may read its activations in fewer bits, as the first
    `limit` samples of `data` lose the least: see `tracer.narrowing`. Where that loses more than
    `budget`, layers may become several nodes. A float model is quantised first.

    With `exact`, and None for `bits`, scales become powers of two, sums fit 24 bits and weights 7,
    so that no float operation rounds: `tracer.accumulators.exactness` proves it.

    With `guarantee` "this-data", sums fit what `data` reach, and a quarter more, instead of any
    input. With the name of a preset in place of `bits`, as "x86-maddubs", the registers within its
    order must fit, and rows of weights that fit them already stay as they are.

    With `tile`, each `tile` terms are summed in `bits` bits, and their sums in 32.

    With `weight_bits`, weights are first rounded to so many bits; scores and sums before are of
    that model. Changed weights have no more bits than the weights that they take the place of.

    The training split of `data` is used where there is one. Scores are by `metric` on the data set
    `test` [default: the test split of `data`].

    With several widths, as `12:20`, each is tried, and the result is the narrowest whose score is
    within `budget` of the quantised model, in percentage points or the unit of the metric; the
    widest, if none is. The model goes to the file `output`, if there is one; `force` replaces a
    file.

    Energies of a sample are by the model `energy`: see `tracer.analyzers.energy`.

    All this is done in a child process, within `limits`, or with `in_process` in this one. Raises
    the errors of `tracer.errors`.

    >>> import tracer
    >>> model = "models/lenet/lenet.int8.onnx"
    >>> narrowed = tracer.narrow(model, 22, "digits", limit=32, test_limit=64)
    >>> all(node.fits for node in narrowed.nodes)
    True
    """
    from tracer.api import _narrow

    return _narrow.narrow(call)
