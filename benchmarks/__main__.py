"""Run benchmarks: `python -m benchmarks [NAME ...]`, all of them without a name.

Each benchmark is a command of its own as well, with options: `python -m benchmarks.NAME --help`.
"""

import argparse
import pkgutil
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the named benchmarks in turn; returns the exit code of the first that fails."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", help="[default: all]")
    parser.add_argument("--list", action="store_true", help="print the names and run nothing")
    options = parser.parse_args(arguments)
    available = names()
    unknown = [name for name in options.names if name not in available]
    if unknown:
        parser.error(f"no benchmark {', '.join(unknown)}; there are {', '.join(available)}")
    if options.list:
        print("\n".join(available))
        return 0
    for name in options.names or available:
        print(f"\n== benchmarks.{name}", flush=True)
        code = subprocess.run([sys.executable, "-m", f"benchmarks.{name}"]).returncode
        if code:
            return code
    return 0


def names() -> list[str]:
    """Returns names of the benchmarks: the public modules of this folder."""
    modules = (module.name for module in pkgutil.iter_modules([str(Path(__file__).parent)]))
    return [name for name in modules if not name.startswith("_")]


if __name__ == "__main__":
    sys.exit(main())
