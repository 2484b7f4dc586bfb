"""The `tracer` command, also as `python -m tracer`: runs in a child process under a supervisor."""

import sys

from tracer.containment.supervisor import supervised


def main() -> int:
    """Runs the command line and returns its exit code."""
    return supervised(_command, "tracer")


def _command() -> int:
    from tracer.cli import main as run

    return run()


if __name__ == "__main__":
    sys.exit(main())
