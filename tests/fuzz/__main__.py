"""Feeds mutants of models, traces and inputs to tracer: `python -m tests.fuzz --mutants 20000`.

Each mutant goes through several commands. A command passes if it ends within 10 s and 2 GiB with
a documented exit code and at most one line of error, and leaves no files behind. Crashes of onnx
and onnxruntime are what the supervisor of `tracer` contains: they are counted apart, and each is
run again as a real command, which must tell it in one line.

A fifth of the mutants run where indices of compiled code and the allocator's blocks are checked, in
a second program that this one starts.
"""

import os
import subprocess
import sys

from tracer.cli._output import NO_FENCE
from tracer.containment.supervisor import IN_PROCESS

SINGLE = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system", "JE_ARROW_MALLOC_CONF": "background_thread:false",
}  # fmt: skip
"""What keeps libraries from starting threads when they are imported: a fork has none of them."""

CHECKS = {
    "LD_PRELOAD": "libc_malloc_debug.so.0", "MALLOC_CHECK_": "3", "MALLOC_PERTURB_": "165",
    "NUMBA_BOUNDSCHECK": "1",
}  # fmt: skip
"""glibc ends a process that wrote outside its blocks, and fills what is new or freed with 165."""
APART = ("--checked", "--only", "--corpus")
"""Options with which there is one program alone."""

if __name__ == "__main__":
    os.environ.update(SINGLE)
    os.environ[IN_PROCESS] = "1"
    os.environ[NO_FENCE] = "1"  # the harness writes beside the folders of a command
    options = sys.argv[1:]
    if "--checked" in options and not CHECKS.items() <= os.environ.items():
        again = [sys.executable, "-m", "tests.fuzz", *options]
        os.execve(sys.executable, again, {**os.environ, **CHECKS})  # read when libraries load
    from tests.fuzz.program import main

    code = main()
    if not any(option in APART for option in options):
        checked = [sys.executable, "-m", "tests.fuzz", *options, "--checked"]
        code |= subprocess.call(checked)
    sys.exit(code)
