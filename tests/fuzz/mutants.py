"""Makes the mutant of a number: the same one for a seed, a number and a checkout."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

from tests.fuzz.mutations import models, octets, tables, tokens
from tests.fuzz.seeds import Seed

SHARES = {
    "model": 76, "quantized": 5, "trace": 13, "arrays": 1, "tensor": 1, "policy": 1.5,
    "energy": 1, "certificate": 1.5,
}  # fmt: skip
"""Percent of the mutants by kind."""
MUTATED = {
    "model": models.mutated, "quantized": models.mutated, "trace": tables.mutated,
    "arrays": octets.mutated, "tensor": octets.mutated, "policy": tokens.mutated,
    "energy": tokens.mutated, "certificate": tokens.mutated,
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Mutant:
    """A file that a seed became; `draws` is a number for what else is drawn."""

    number: int
    kind: str
    origin: str
    content: bytes
    draws: int


def mutant(seeds: Mapping[str, list[Seed]], seed: int, only: str | None, number: int) -> Mutant:
    """Returns the mutant of a number, of all kinds or of one `only`."""
    random = Random(f"{seed}:{number}")  # a text is hashed alike in every process
    (kind,) = [only] if only else random.choices(list(SHARES), weights=list(SHARES.values()))
    origin, other = random.choice(seeds[kind]), random.choice(seeds[kind])
    content, names = MUTATED[kind](random, origin.content, other.content)
    return Mutant(number, kind, f"{origin.name}: {names}", content, random.getrandbits(32))
