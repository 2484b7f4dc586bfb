"""Kills commands at random moments, runs them again, and compares with undisturbed runs."""

import random
import shutil
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tests.durability.commands import Command
from tests.durability.killing import VICTIMS, Place, finished, killed


@dataclass(frozen=True, slots=True)
class Undisturbed:
    """What a command writes when nobody kills it, how long it takes, and what it leaves."""

    command: Command
    content: object
    seconds: float
    leftovers: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Kill:
    """A kill: whether the process still ran, and what was found after it and after the next run.

    `partial` tells why a file was neither whole nor the one before, '' if it was.
    """

    command: Command
    victim: str
    seconds: float
    hit: bool
    partial: str
    identical: bool
    leftovers: tuple[str, ...]


def undisturbed(command: Command, place: Place) -> Undisturbed:
    """Runs the command twice; the first run fills the caches."""
    finished(command, place)
    _empty(place, command)
    start = time.monotonic()
    finished(command, place)
    seconds = time.monotonic() - start
    content = command.content(place.out / command.output)
    return Undisturbed(command, content, seconds, tuple(place.leftovers(command.output)))


def kills(model: Undisturbed, folder: Path, count: int, seed: int) -> Iterator[Kill]:
    """Yields `count` kills at random moments of a run."""
    chance = random.Random(f"{seed} {model.command.name}")
    for number in range(count):
        seconds = chance.uniform(0, model.seconds)
        yield _kill(model, Place(folder), seconds, VICTIMS[number % len(VICTIMS)])


def _kill(model: Undisturbed, place: Place, seconds: float, victim: str) -> Kill:
    command, path = model.command, place.out / model.command.output
    _empty(place, command)
    if not command.resumes:
        path.write_text(_OLD)
    hit = killed(command, place, seconds, victim)
    why = partial(model, path)
    finished(command, place)
    left = [name for name in place.leftovers(command.output) if name not in model.leftovers]
    identical = command.content(path) == model.content
    return Kill(command, victim, seconds, hit, why, identical, tuple(left))


def _empty(place: Place, command: Command) -> None:
    for folder in (place.out, place.tmp, *([place.cache] if command.compiles else [])):
        shutil.rmtree(folder)
        folder.mkdir()


_OLD = "what was there before"


def partial(model: Undisturbed, path: Path) -> str:
    """Returns what is wrong with the file after a kill; it may be absent, as before, or whole."""
    if model.command.resumes or not path.exists() or path.read_bytes() == _OLD.encode():
        return ""
    try:
        return "" if model.command.content(path) == model.content else "other content"
    except Exception as error:  # each reader has exceptions of its own
        return f"{type(error).__name__}: {error}"


def table(found: Sequence[Kill]) -> str:
    """Returns a line for each command, and one for each kill that went wrong."""
    lines = [f"{'command':<24} kills  while it ran  half files  identical after  leftovers"]
    for name in dict.fromkeys(kill.command.name for kill in found):
        those = [kill for kill in found if kill.command.name == name]
        lines.append(
            f"{name:<24} {len(those):5} {sum(k.hit for k in those):14} "
            f"{sum(bool(k.partial) for k in those):11} {sum(k.identical for k in those):16} "
            f"{sum(bool(k.leftovers) for k in those):10}"
        )
    lines += [str(kill) for kill in found if is_wrong(kill)]
    return "\n".join(lines)


def is_wrong(kill: Kill) -> bool:
    """Whether the kill left a half file, another result, or anything else."""
    return bool(kill.partial or kill.leftovers or not kill.identical)
