"""A command: its two helps, the names that it suggests, how much it says, what the user typed."""

import importlib
import shlex
from collections.abc import Container, Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import Any

import click
import cloup
from cloup.formatting import HelpSection, ensure_is_cloup_formatter

from tracer import __version__
from tracer.cli import _messages
from tracer.support.temporary import STANDARD_INPUT
from tracer.text import ask, suggest

_FEW = 12
"""Options that `--help` shows without a choice among them."""
_ALL = "tracer.help-all"
"""Key of a context whose help shows all options."""
_SWITCHES = ("--force", "--overwrite")
_SYNONYMS = (
    ("--runs", "--sessions", "--iterations", "--repeat"),
    ("--data", "--calibrate", "--dataset", "--test"),
    ("--accumulator", "--bits", "--width"),
    ("--provider", "--device", "--ep"),
    ("--inputs", "--input", "--feeds"),
    ("--batch", "--batch-size"),
    ("--dim", "--input-shape", "--shape", "--dims"),
    ("--limit", "--test-limit", "--samples"),
    ("--max-seconds", "--seconds", "--timeout"),
    ("--sort", "--by", "--columns", "--group-by"),
    ("--top", "--rows", "--head"),
    ("--output", "--out", "--save"),
    _SWITCHES,
    ("--rtol", "--atol", "--tolerance"),
)
"""Options that people take for each other; each command has one or two of a line."""


class Option(cloup.Option):
    """An option of a command; `--help` shows it if it is `common`."""

    def __init__(self, *names: Any, common: bool = False, **settings: Any) -> None:
        super().__init__(*names, **settings)
        self.common = common


def _show_version(ctx: click.Context, param: click.Parameter, chosen: bool) -> None:
    if chosen and not ctx.resilient_parsing:
        click.echo(f"tracer, version {__version__}")
        ctx.exit()


def _show_all(ctx: click.Context, param: click.Parameter, chosen: bool) -> None:
    if chosen and not ctx.resilient_parsing:
        ctx.meta[_ALL] = True
        click.echo(ctx.get_help(), color=ctx.color)
        ctx.exit()


def _set_voice(ctx: click.Context, param: click.Parameter, chosen: bool) -> None:
    if chosen:
        _messages.set_voice(param.name or "")


def _flag(*names: str, **settings: Any) -> Option:
    return Option(names, is_flag=True, is_eager=True, expose_value=False, **settings)


VOICE = (
    _flag("-q", "--quiet", callback=_set_voice, common=True,
          help="Say nothing but the result and errors; with -o, show no table either."),
    _flag("-v", "--verbose", callback=_set_voice, common=True,
          help="Show all notes, the time of each step, and the causes of an error."),
    _flag("-V", "--version", callback=_show_version, help="Show the version and exit."),
)  # fmt: skip
"""Options of every command, and of `tracer` itself."""


class Command(cloup.Command):
    """A command whose `--help` shows its common options, and `--help-all` all of them."""

    def __init__(
        self, *args: Any, params: Sequence[click.Parameter] | None = None, **settings: Any
    ) -> None:
        own = [param for param in params or () if isinstance(param, click.Option)]
        self._is_short = len(own) <= _FEW
        show_all = _flag("--help-all", callback=_show_all, common=True, hidden=self._is_short,
                         help=f"Show all {len(own)} options and exit.")  # fmt: skip
        super().__init__(*args, params=[*(params or ()), *VOICE, show_all], **settings)

    def format_params(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Writes the sections of the options that the help shows."""
        shows_all = self._is_short or _ALL in ctx.meta
        sections = []
        for group in (*self.option_groups, self.get_default_option_group(ctx)):
            shown = [each for each in group.options
                     if shows_all or getattr(each, "common", "--help" in each.opts)]  # fmt: skip
            records = [each.get_help_record(ctx) for each in shown]
            sections.append(HelpSection(group.title, list(filter(None, records)), group.help))
        named = [section for section in sections if section.definitions]
        ensure_is_cloup_formatter(formatter).write_many_sections(named, aligned=True)

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Parses the arguments; an option that is not there may have another name here."""
        typed = tuple(args)
        try:
            return super().parse_args(ctx, args)
        except click.NoSuchOption as error:
            name = error.option_name
            # click reads -runs as -r -u -n -s
            whole = next((each for each in typed if each.startswith(name)), name).partition("=")[0]
            remedy = _remedy(ctx, "--" + whole.lstrip("-"))
            raise click.UsageError(f"No such option '{whole}'. {remedy}".rstrip(), ctx) from None


def ask_synonyms(name: str, known: Container[str]) -> str:
    """Returns the question whether an option of similar meaning was meant; "" if none is known."""
    return ask([each for line in _SYNONYMS if name in line for each in line
                if each in known and each != name])  # fmt: skip


def _remedy(ctx: click.Context, name: str) -> str:
    """Returns what to type instead of an option that the command does not have."""
    own = _long_names(ctx.command)
    # the --bits of compare takes no value, and stands for no accumulator
    alike = own if name in _SWITCHES else _long_names(ctx.command, with_switches=False)
    near = ask_synonyms(name, alike) or suggest(name, own)
    group = ctx.parent.command if ctx.parent else None
    if near or not isinstance(group, click.Group):
        return near
    every = [(each, group.get_command(ctx, each)) for each in group.list_commands(ctx)]
    others = [f"tracer {each}" for each, other in every if other and name in _long_names(other)]
    return f"It is an option of {', '.join(others)}." if others else ""


def _long_names(command: click.Command, with_switches: bool = True) -> list[str]:
    options = (param for param in command.params if isinstance(param, click.Option)
               and (with_switches or not param.is_flag))  # fmt: skip
    return [name for each in options for name in each.opts if name.startswith("--")]


_WORDS = "tracer.words"
"""Key of the words behind the name of the command, in the `meta` of a context."""

_KEPT = (
    "args", "weights", "input_shape", "input_dtype", "trust", "operators", "batch", "dims",
    "inputs", "data", "data_dir", "limit", "seed", "threads", "optimization", "provider",
    "provider_options", "register", "train", "backward", "device", "prefill", "decode", "past",
    "energy",
)  # fmt: skip
"""Options about the model, its inputs and its session, by parameter: the next command has them,
too."""
_OF_SUMS = (
    "order", "overflow", "bias", "zero_points", "operands", "product_bits", "product_shift",
    "product_rounding", "magnitude", "fixed",
)  # fmt: skip
"""Options about narrow sums: a command that has an accumulator has them, too."""
_FILES = ("-o", "--output", "--force", "--open", "--save", "--certificate")
"""Options about the files of a command: the next one would find them written."""


def keep_words(context: click.Context, words: Sequence[str]) -> None:
    """Keeps the words of a command line in a context, before they are parsed."""
    context.meta[_WORDS] = tuple(words)
    from tracer.api._calls import is_typed  # which the list of commands need not wait for

    token = is_typed.set(True)
    context.call_on_close(lambda: is_typed.reset(token))


@dataclass(frozen=True)
class Typed:
    """What was typed: the name of the command, and flag and texts of each parameter, by name."""

    command: str
    params: dict[str, tuple[str, tuple[str, ...]]]

    @classmethod
    def now(cls) -> "Typed | None":
        """Returns the running command; None where no command line of tracer was typed."""
        context = click.get_current_context(silent=True)
        if context is None or _WORDS not in context.meta:
            return None
        words = context.meta[_WORDS]
        values, _, _ = context.command.make_parser(context).parse_args([*words])
        typed = {word.partition("=")[0] for word in words}
        params = {}
        for param in context.command.params:
            value = values.get(param.name or "")
            texts = value if isinstance(value, tuple | list) else (value,)
            if all(isinstance(text, str | bool) for text in texts):  # others were not typed
                flags = param.secondary_opts if value is False else param.opts
                flag = next((each for each in flags if each in typed), flags[-1])
                params[str(param.name)] = flag, tuple(t for t in texts if isinstance(t, str))
        return cls(str(context.info_name), params)

    def has(self, *names: str) -> bool:
        """Whether any of these parameters was typed."""
        return any(name in self.params for name in names)

    def texts(self, name: str) -> tuple[str, ...]:
        """Returns the texts of a parameter; none where it was not typed."""
        return self.params.get(name, ("", ()))[1]

    def text(self, name: str, ending: str = "") -> str:
        """Returns the first text of a parameter that ends so; '' for none."""
        return next((text for text in self.texts(name) if text.endswith(ending)), "")

    @property
    def subjects(self) -> tuple[str, ...]:
        """Returns models, sides or traces, as a command line names them; none from stdin."""
        known = (self.texts(name) for name in ("sides", "models", "traces", "source", "model"))
        found = next(filter(None, known), ())
        if STANDARD_INPUT in found:
            return ()
        return tuple(f"./{each}" if each.startswith("-") else each for each in found)

    def next(
        self, command: str, subjects: Sequence[str], *words: str, without: Sequence[str] = ()
    ) -> str:
        """Returns a command line with `words`, and the typed options that `command` has as well.

        Of another command these are options about the model and its inputs, and about the sums if
        `words` set an accumulator; of the same command all but files; and neither those in
        `without` nor those that `words` set.
        """
        names = (*_KEPT, *(_OF_SUMS if "--accumulator" in words else ()))
        wanted = {
            name: (flag, texts)
            for name, (flag, texts) in self.params.items()
            if name in names or (command == self.command and flag not in _FILES)
        }
        options: dict[str, click.Option] = {}
        if wanted:  # importing another command takes longer than to print the line
            known = importlib.import_module(f"tracer.cli.{command}").command.params
            having = [param for param in known if isinstance(param, click.Option)]
            options = {o: each for each in having for o in (*each.opts, *each.secondary_opts)}
        kept = list[str]()
        for name, (flag, texts) in wanted.items():
            option = options.get(flag)
            if option is None or name in without:
                continue
            if not {*option.opts, *option.secondary_opts}.isdisjoint(words):
                continue
            # a sweep's name is a plural
            is_same = name in _OF_SUMS or str(option.name).rstrip("s") == name.rstrip("s")
            if is_same and _are_read(option, texts):
                kept += [word for text in texts for word in (flag, text)] or [flag]
        return shlex.join(["tracer", command, *subjects, *kept, *words])


def _are_read(option: click.Option, texts: Sequence[str]) -> bool:
    """Whether a command reads these texts of an option of the same name."""
    try:
        for text in texts:
            option.type.convert(text, None, None)
    except click.BadParameter:
        return False
    return True


def new_file(model: str, ending: str, folder: Path = Path()) -> str:
    """Returns a file that is not in `folder` yet, after a model: `net.html`, `net-2.html`."""
    stem = Path(model.rpartition(":")[0] or model).name.partition(".")[0] or "model"
    names = (f"{stem}{'' if number == 1 else f'-{number}'}{ending}" for number in count(1))
    return next(str(folder / name) for name in names if not (folder / name).exists())
