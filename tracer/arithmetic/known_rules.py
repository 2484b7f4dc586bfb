"""The rules of this machine's kernels: revealed when asked for, and kept in the cache folder.

There is a file for each processor, release of onnxruntime and state of this package's sources. A
rule is that of kernels with the same operator, attributes, shapes, types, threads and small
constants, whatever their weights.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import msgspec
import onnxruntime as ort

from tracer.arithmetic.kernel import Kernel
from tracer.arithmetic.replays import replay_of
from tracer.arithmetic.rule import NotKnown, Rule, reveal
from tracer.errors import ModelError
from tracer.executors.onnxruntime import sessions
from tracer.interpreter.compiled_code import loaded
from tracer.support.files import cached_file, read_cached, store_in_cache


class KnownRules:
    """The rule of each kernel; `announce` is called before one is revealed.

    The rules that are stored are left aside with `anew`. `folder` defaults to the user's cache
    folder.
    """

    def __init__(
        self,
        folder: Path | None = None,
        anew: bool = False,
        announce: Callable[[Kernel], None] = lambda kernel: None,
    ) -> None:
        target = loaded("machine_code").target()  # instructions as cpuid tells them
        sources = sorted(Path(__file__).parent.rglob("*.py"))
        method = hashlib.sha256(b"".join(file.read_bytes() for file in sources)).hexdigest()
        key = (method, target, ort.__version__)
        self._file, self._announce = cached_file("rules", key, folder), announce
        self._rules = {} if anew else _read(self._file)
        self._found: dict[str, Rule] = {}
        self._unknown: dict[str, str] = {}

    def of(self, kernel: Kernel) -> Rule:
        """Returns the rule of a kernel. Raises NotKnown, with the reason, if none is found."""
        key = kernel.key
        if key in self._unknown:
            raise NotKnown(self._unknown[key])
        if key not in self._rules:
            self._announce(kernel)
            try:
                self._rules[key] = self._found[key] = _reveal(replace(kernel))
            except NotKnown as reason:
                self._unknown[key] = str(reason)
                raise
        return self._rules[key]

    def store(self) -> None:
        """Adds the rules that were found to those that are stored."""
        if self._found:
            store_in_cache(self._file, msgspec.json.encode({**_read(self._file), **self._found}))


def _reveal(kernel: Kernel) -> Rule:
    """Returns the rule of a kernel, whose session ends with it."""
    try:
        return reveal(replay_of(kernel.node.domain, kernel.op_type), kernel)
    except ModelError as error:
        raise NotKnown("neither a rule nor tracer's interpreter has the operator") from error
    except Exception as error:
        if not sessions.is_onnxruntimes(error):
            raise
        message = " ".join(str(error).split())
        raise NotKnown(f"onnxruntime refuses random inputs: {message}") from error


def _read(file: Path) -> dict[str, Rule]:
    data = read_cached(file)
    try:
        return {} if data is None else msgspec.json.decode(data, type=dict[str, Rule])
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return {}
