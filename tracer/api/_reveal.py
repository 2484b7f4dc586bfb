"""What `reveal` does: tries what the operands of a function may be, and finds its rule."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from tracer.api.reveal import RevealArguments
from tracer.arithmetic import bias_places, float_rules, integer_rules
from tracer.arithmetic.black_box import AUTO, BlackBox, FunctionFailed, Operands
from tracer.arithmetic.kernel import NotKnown
from tracer.errors import InputError, TracerError, UsageError
from tracer.records.bits import Revealed
from tracer.support.imports import from_user_file, user_code_error

_HINT = "Name a function of two vectors as FILE.py:FUNCTION."
_FLOATS = ("fp32", "fp16", "bf16", "tf32", "fp8-e4m3", "fp8-e5m2")
_FP16_BITS, _BEYOND_FP16, _FEWEST = 10, 2.0**17, 3
_BITS = {_FP16_BITS: "fp16", 7: "bf16", 3: "fp8-e4m3", 2: "fp8-e5m2"}
"""Formats by their bits of fraction; tf32 has the 10 of fp16, and the range of float32."""
_INTEGERS = ("int64", "int8", "uint8/int8")
"""Operands that are tried where none are named: the first tell most."""


def reveal(call: RevealArguments) -> Revealed:
    """Returns the rule of a function, or why it is not known."""
    function, name, file = _function(call.function)
    first: Revealed | None = None
    failure: TracerError | FunctionFailed | None = None
    for text in _guesses(function, call.terms) if call.operands == AUTO else (call.operands,):
        if first is not None and text in _FLOATS:
            continue  # it takes a wider type
        operands = Operands.read(text, call.terms)
        try:
            result = _revealed(BlackBox(function, call.terms, operands), name, call.seed)
        except (TracerError, FunctionFailed) as error:
            failure = failure or error
            continue
        # exact sums of integers say nothing of a function of floats
        if result.is_known and not (first and result.facts.get("exact")):
            return result
        first = first or result
    if first is not None:
        return first
    assert failure is not None
    cause = failure.__cause__
    if isinstance(failure, TracerError) or not isinstance(cause, Exception):
        raise failure
    if file is not None:
        raise user_code_error(name, file, cause) from cause
    raise InputError(
        f"{name} raised {type(cause).__name__}: {cause}", "Name the operands that it takes."
    ) from cause


def _guesses(function: Callable[..., Any], terms: int) -> tuple[str, ...]:
    """Returns what may be the operands: no floats if the function does not keep a half.

    The format to which the function narrows float32 comes first.
    """
    box = BlackBox(function, terms, Operands.read("fp32", terms))
    half = np.zeros((1, terms), np.float32)
    half[0, 0] = 0.5
    try:
        if box.sums(half, half * 2)[0] != half[0, 0]:
            return _INTEGERS
        narrow = _narrow_format(box)
    except (TracerError, FunctionFailed):
        return _INTEGERS
    return tuple(dict.fromkeys((narrow or _FLOATS[0], *_FLOATS, _INTEGERS[0])))


def _narrow_format(box: BlackBox) -> str | None:
    """Returns the format to which a function narrows float32, while its sums keep more bits.

    1 + 2^-bits - 1 tells how many bits outlive the operand, and the sum. None is float32.
    """
    if box.terms < _FEWEST:
        return None
    bits = np.arange(1, 24)
    inside, apart = (np.zeros((len(bits), box.terms), np.float32) for _ in range(2))
    inside[:, 0], inside[:, 1] = 1 + 2.0**-bits, -1
    apart[:, 0], apart[:, 1], apart[:, 2] = 1, 2.0**-bits, -1
    kept, held = (
        int(np.argmin(np.append(box.sums(rows, np.ones_like(rows)) == 2.0**-bits, False)))
        for rows in (inside, apart)
    )
    if held <= kept:
        return None
    large = np.zeros((1, box.terms), np.float32)
    large[0, 0] = _BEYOND_FP16
    factor = np.full_like(large, 1 / _BEYOND_FP16)
    is_wide = box.sums(large, factor)[0] in (1, _BEYOND_FP16)
    return "tf32" if kept == _FP16_BITS and is_wide else _BITS.get(kept)


def _function(source: Callable[..., Any] | str) -> tuple[Callable[..., Any], str, Path | None]:
    """Returns a function, its name and its file. Raises UsageError or InputError."""
    if not isinstance(source, str):
        return source, getattr(source, "__name__", "function").replace("<lambda>", "lambda"), None
    place, _, name = source.rpartition(":")
    if not place.endswith(".py"):
        raise UsageError(f"'{source}' names no function", _HINT)
    function = from_user_file(Path(place), name, _HINT)
    if not callable(function):
        raise InputError(f"{place} has no function '{name}'", _HINT)
    return function, source, Path(place)


def _revealed(box: BlackBox, name: str, seed: int) -> Revealed:
    random = np.random.default_rng(seed)
    rules = integer_rules if box.operands.are_integers else float_rules
    try:
        rule = rules.reveal(box, random)
        if box.takes_bias:
            rule = bias_places.find(box, random, rule)
    except NotKnown as reason:
        return Revealed(name, box.terms, box.operands.text, None, None, str(reason), box.probes, 0)
    return Revealed(
        name, box.terms, box.operands.text, rule.text, rule.spec, rule.note, box.probes,
        rule.vectors, rule.facts, rule.tree,
    )  # fmt: skip
