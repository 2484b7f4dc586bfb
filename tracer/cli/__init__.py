"""The `tracer` command: finds the module of a command, runs it, turns errors into exit codes."""

import importlib
import pkgutil
import re
import shutil
import sys
from collections.abc import Sequence

import click
import cloup

from tracer.cli import _messages
from tracer.cli._command import VOICE, keep_words
from tracer.cli._options import DEBUG
from tracer.cli._types import kind_of
from tracer.containment import activity, memory, signals
from tracer.errors import InputError, LimitError, TracerError, is_lack_of_memory
from tracer.support import files, temporary
from tracer.text import suggest

SECTIONS = {
    "Measure": ("profile", "compare", "bisect", "report", "demo"),
    "Understand": ("count", "fusions", "diff", "interpret", "reveal", "fingerprint", "env", "docs"),
    "Transform": ("export", "extract", "quantize", "tune", "whatif", "narrow"),
}
"""Commands in the order of `tracer --help`."""

ALIASES = {"quantise": "quantize", "what-if": "whatif", "what_if": "whatif"}
_NARROWEST = 20
"""Characters of a line of help."""
_COMMAND = re.compile(r'^def command\(.*?"""([^\n]+)', re.DOTALL | re.MULTILINE)
"""The function of a command, with the first line of its help."""
INTERNAL_ERROR = 70  # EX_SOFTWARE of sysexits.h
INTERRUPTED, TERMINATED = 130, 143  # as shells do: 128 + the number of the signal


class Commands(cloup.Group):
    """A command is the `command` object of a public module of this package."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """Returns the names of the modules, which are the names of the commands."""
        names = (module.name for module in pkgutil.iter_modules(__path__))
        return sorted(name for name in names if not name.startswith("_"))

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Imports the module of one command; None where there is no such module."""
        if cmd_name == "help":
            return _help
        if cmd_name not in self.list_commands(ctx):
            return None
        command = importlib.import_module(f"tracer.cli.{cmd_name}").command
        assert isinstance(command, click.Command)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Finds the command, and keeps the words behind its name for the next step."""
        name, command, words = super().resolve_command(ctx, args)
        keep_words(ctx, words)
        return name, command, words

    def resolve_command_name(self, ctx: click.Context, name: str) -> str | None:
        """Returns the name of a command for the name or an alias of one, else None."""
        name = ALIASES.get(name, name)
        return name if self.get_command(ctx, name) else None

    def handle_bad_command_name(
        self, bad_name: str, valid_names: list[str], error: click.UsageError
    ) -> click.UsageError:
        """Returns the error for a command that is not there: a typing error, or a file."""
        near = suggest(bad_name, [*self.list_commands(click.Context(self)), *ALIASES, "help"])
        kind = kind_of(bad_name)
        remedy = near if kind is None else kind.remedy.format(bad_name)
        return click.UsageError(f"No such command '{bad_name}'. {remedy}".rstrip(), error.ctx)

    def list_sections(
        self, ctx: click.Context, include_default_section: bool = True
    ) -> list[cloup.Section]:
        """Returns the sections of the help; commands outside SECTIONS come last."""
        commands = {name: _listed(name) or self.get_command(ctx, name)
                    for name in self.list_commands(ctx)}  # fmt: skip
        sections = {
            title: {name: commands.pop(name) for name in names} for title, names in SECTIONS.items()
        }
        return [
            cloup.Section(title, {name: command for name, command in members.items() if command})
            for title, members in {**sections, "Other": commands}.items()
        ]


def _listed(name: str) -> click.Command | None:
    """Returns a command with the name and the first line of its help alone, read from the source.

    The list of commands needs no more. Importing the modules of all of them takes 0.1 s.
    """
    try:
        source = pkgutil.get_data(__name__, f"{name}.py") or b""
    except OSError:  # an install without sources
        return None
    line = _COMMAND.search(source.decode())
    return None if line is None else click.Command(name, help=line[1].removesuffix('"""'))


@cloup.group(
    cls=Commands,
    context_settings={
        "help_option_names": ["-h", "--help"],
        "formatter_settings": cloup.HelpFormatter.settings(col1_max_width=22),
    },
    params=list(VOICE),
    epilog="tracer docs command-line: shell completion, exit codes and environment variables.",
)
@DEBUG
def tracer(debug: bool) -> None:
    """Show where a model spends its time, and how few accumulator bits it needs.

    \b
    Examples:
      tracer profile model.onnx
      tracer count model.onnx --by op
      tracer profile --help
    """


@click.command("help")
@click.argument("name", required=False, shell_complete=lambda ctx, param, begin: [
    each for each in tracer.list_commands(ctx) if each.startswith(begin)
])  # fmt: skip
@click.pass_context
def _help(ctx: click.Context, name: str | None) -> None:
    """Show the help of a command, as --help does."""
    group = ctx.find_root()
    words = ["--help"] if name is None else [name, "--help"]
    tracer.main(words, group.info_name, standalone_mode=False, terminal_width=group.terminal_width)


def main(args: list[str] | None = None) -> int:
    """Runs the command line and returns its exit code; an error is one line on stderr."""
    return run(tracer, "tracer", args)


def run(command: click.Command, name: str, args: list[str] | None = None) -> int:
    """Runs `command`, shown as `name`, and returns its exit code; it accepts `--debug` anywhere."""
    args = sys.argv[1:] if args is None else args
    debug = "--debug" in args
    if debug:  # users append it to a failed command, where click would not accept it
        args = ["--debug", *(arg for arg in args if arg != "--debug")]
    files.begin()
    _messages.begin()
    try:
        with signals.raising():
            # click cannot break lines shorter than this
            width = _NARROWEST if shutil.get_terminal_size().columns < _NARROWEST else None
            code = command.main(args, prog_name=name, standalone_mode=False, terminal_width=width)
        _messages.tell_time("done")
    except click.exceptions.NoArgsIsHelpError as error:
        error.show()
        return error.exit_code
    except SystemExit:  # click completes a word for the shell
        raise
    except BaseException as error:  # interrupts, and whatever the user's code raises
        plain = (click.ClickException, click.Abort)  # their tracebacks show click's code only
        ends = (KeyboardInterrupt, signals.Terminated, signals.TimeUp)
        if debug and not isinstance(error, (*plain, *ends)):
            raise
        line, code = _line_and_code(error, [name, *args])
        _messages.tell_standing()
        _messages.tell_error(f"{name}: {line}", error)
        activity.end(code)  # before memory is freed, which may run a user's code
    return code if isinstance(code, int) else 0


def _line_and_code(error: BaseException, command: Sequence[str]) -> tuple[str, int]:
    """Returns the line that describes an error of `command`, and the exit code."""
    match error:
        case click.Abort() | KeyboardInterrupt():
            return "interrupted", INTERRUPTED
        case signals.Terminated():
            return "terminated", TERMINATED
        case signals.TimeUp():
            return f"error: {error}", LimitError.exit_code
        case click.ClickException():
            line = " ".join(error.format_message().split())
            end = "" if line.endswith((".", "?")) else "."
            context = getattr(error, "ctx", None)
            advice = f" Try '{context.command_path} --help'." if context else ""
            return f"error: {line}{end}{advice}", error.exit_code
        case TracerError():
            return f"error: {temporary.without_folders(str(error))}", error.exit_code
        case OSError():
            where = f"{error.filename}: " if error.filename else ""
            return f"error: {where}{error.strerror or error}", InputError.exit_code
        case _ if is_lack_of_memory(error):
            where = f"{activity.now().where}: " if activity.now().where else ""
            why = f": {error}" if isinstance(error, MemoryError) and str(error) else ""
            what = f"{where}not enough memory{why}"
            return f"error: {memory.out_of_memory(what)}", LimitError.exit_code
    file = _messages.write_incident(error, command)
    how = "; --debug shows the traceback" if file is None else f" with the file {file}"
    line = f"internal error: {type(error).__name__}: {error}. Please report it{how}."
    return line, INTERNAL_ERROR
