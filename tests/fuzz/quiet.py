"""Runs commands whose output nobody needs."""

import os
from collections.abc import Callable
from contextlib import redirect_stderr, redirect_stdout
from pathlib import Path

import tracer.cli


def run(*args: str) -> None:
    """Runs a command of tracer. Raises RuntimeError if it does not succeed."""
    with Path(os.devnull).open("w") as nowhere, redirect_stdout(nowhere), redirect_stderr(nowhere):
        code = tracer.cli.main(list(args))
    if code:
        raise RuntimeError(f"tracer {' '.join(args)} ended with exit code {code}")


def apart(job: Callable[[], object]) -> None:
    """Runs `job` in a fork: onnxruntime starts threads. Raises RuntimeError if it fails."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            job()
            code = 0
        finally:
            os._exit(code)
    if os.waitpid(process, 0)[1]:
        raise RuntimeError(f"{job} failed")
