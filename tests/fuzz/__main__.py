"""Feeds mutants of models, traces and inputs to tracer: `python -m tests.fuzz --mutants 20000`.

Each mutant goes through several commands. A command passes if it ends within 10 s and 2 GiB with
a documented exit code and at most one line of error, and leaves no files behind. Crashes of onnx
and onnxruntime are what the supervisor of `tracer` contains: they are counted apart, and each is
run again as a real command, which must tell it in one line.
"""

import os
import sys

from tracer.containment.supervisor import IN_PROCESS

SINGLE = {
    "OPENBLAS_NUM_THREADS": "1", "OMP_NUM_THREADS": "1", "NUMBA_NUM_THREADS": "1",
    "ARROW_DEFAULT_MEMORY_POOL": "system", "JE_ARROW_MALLOC_CONF": "background_thread:false",
}  # fmt: skip
"""What keeps libraries from starting threads when they are imported: a fork has none of them."""

if __name__ == "__main__":
    os.environ.update(SINGLE)
    os.environ[IN_PROCESS] = "1"
    from tests.fuzz.program import main

    sys.exit(main())
