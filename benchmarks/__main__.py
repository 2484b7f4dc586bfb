"""`python -m benchmarks`: every benchmark in turn; each is a command of its own as well."""

from __future__ import annotations

import pkgutil
import subprocess
import sys
from pathlib import Path


def main() -> int:
    """Run each module of this folder that is not private; stop at the first that fails."""
    for module in pkgutil.iter_modules([str(Path(__file__).parent)]):
        if module.name.startswith("_"):
            continue
        print(f"\n== benchmarks.{module.name}", flush=True)
        code = subprocess.run([sys.executable, "-m", f"benchmarks.{module.name}"]).returncode
        if code:
            return code
    return 0


if __name__ == "__main__":
    sys.exit(main())
