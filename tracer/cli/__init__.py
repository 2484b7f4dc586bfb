"""The command line: one file per command, found by its name and imported when it is called."""

from __future__ import annotations

import importlib
import pkgutil
import sys

import click

from tracer import __version__
from tracer.errors import TracerError

INTERNAL_ERROR = 70  # sysexits.h EX_SOFTWARE: our fault, not the user's
INTERRUPTED = 130


class Commands(click.Group):
    """Every public module of this package is a command: its `command` object."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Names of the modules, which are the names of the commands."""
        names = (module.name for module in pkgutil.iter_modules(__path__))
        return sorted(name for name in names if not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import the one module that is asked for."""
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"tracer.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command


@click.command(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(__version__, package_name="tracer-onnx")
@click.option("--debug", is_flag=True, help="Show Python tracebacks instead of one-line errors.")
def tracer(debug: bool) -> None:
    """Where does a network's time go, is that true, and how few bits would do?

    Examples:

    \b
      tracer profile model.onnx
      tracer count model.onnx --by op
      tracer COMMAND --help
    """


def main(args: list[str] | None = None) -> int:
    """Run the command line and return its exit code; errors are one line on stderr."""
    return run(tracer, "tracer", args)


def run(command: click.Command, name: str, args: list[str] | None = None) -> int:
    """Run `command`, called `name` and knowing `--debug`, as `main` does the tracer command."""
    args = sys.argv[1:] if args is None else args
    debug = "--debug" in args
    if debug:  # may stand anywhere, as it is what one adds to a failed command
        args = ["--debug", *(arg for arg in args if arg != "--debug")]
    try:
        code = command.main(args, prog_name=name, standalone_mode=False)
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except click.ClickException as error:
        return _fail(name, f"error: {_sentence(error)}", error.exit_code)
    except (click.Abort, KeyboardInterrupt):
        return _fail(name, "interrupted", INTERRUPTED)
    except TracerError as error:
        if debug:
            raise
        return _fail(name, f"error: {error}", error.exit_code)
    except BrokenPipeError:  # the reader of our output went away, as `| head` does
        sys.stderr.close()
        return 0
    except Exception as error:  # the last door: a user never meets a bare traceback
        if debug:
            raise
        kind = type(error).__name__
        return _fail(
            name,
            f"internal error: {kind}: {error}. Please report it; --debug shows where.",
            INTERNAL_ERROR,
        )
    return code if isinstance(code, int) else 0


def _sentence(error: click.ClickException) -> str:
    """What click says, in one line as our own errors are, with where to read on."""
    what = " ".join(error.format_message().split())
    context = getattr(error, "ctx", None)
    return f"{what} Try '{context.command_path} --help'." if context else what


def _fail(name: str, message: str, code: int) -> int:
    click.echo(f"{name}: {message}", err=True)
    return code
