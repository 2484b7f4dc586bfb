"""Mutations of bytes: of any file, whatever it means."""

import struct
from random import Random

from tests.fuzz.mutations import extremes

VARINTS = (b"\xff" * 9 + b"\x01", b"\xff\xff\xff\xff\x0f", b"\x80" * 9 + b"\x01", b"\x80\x80\x00")
"""64 and 32 bits of ones as protobuf writes them, the least integer, and a zero in three bytes."""


def flip(random: Random, data: bytearray, other: bytes) -> None:
    for _ in range(random.choice((1, 1, 2, 8))):
        data[random.randrange(len(data))] ^= 1 << random.randrange(8)


def put(random: Random, data: bytearray, other: bytes) -> None:
    data[random.randrange(len(data))] = random.choice((0, 1, 0x7F, 0x80, 0xFF, 0x0A, 0x12))


def cut(random: Random, data: bytearray, other: bytes) -> None:
    del data[random.randrange(len(data)) :]


def delete(random: Random, data: bytearray, other: bytes) -> None:
    start, end = _span(random, len(data))
    del data[start:end]


def double(random: Random, data: bytearray, other: bytes) -> None:
    start, end = _span(random, len(data))
    data[start:start] = data[start:end]


def splice(random: Random, data: bytearray, other: bytes) -> None:
    """Puts a piece of another seed into this one."""
    if other:
        start, end = _span(random, len(other))
        place, until = _span(random, len(data))
        data[place : random.choice((place, until))] = other[start:end]


def varint(random: Random, data: bytearray, other: bytes) -> None:
    place = random.randrange(len(data))
    data[place : place + random.choice((0, 1))] = random.choice(VARINTS)


def number(random: Random, data: bytearray, other: bytes) -> None:
    """Overwrites eight bytes, or four, as headers of archives, arrays and databases have them."""
    kind = random.choice(("<q", ">q", "<i", ">i"))
    bits = 8 * struct.calcsize(kind)
    value = extremes.integer(random) % (1 << bits)
    value -= (1 << bits) if value >> (bits - 1) else 0
    place = random.randrange(len(data))
    data[place : place + bits // 8] = struct.pack(kind, value)


MUTATIONS = (flip, flip, put, cut, delete, double, splice, varint, number)


def mutated(random: Random, content: bytes, other: bytes) -> tuple[bytes, str]:
    """Returns the bytes after a mutation, and its name. `other` is another seed."""
    data = bytearray(content)
    mutation = random.choice(MUTATIONS)
    if data:
        mutation(random, data, other)
    return bytes(data), mutation.__name__


def _span(random: Random, length: int) -> tuple[int, int]:
    """A piece of up to 64 bytes, sometimes of any length."""
    start = random.randrange(length)
    most = length - start if random.random() < 0.2 else min(64, length - start)
    return start, start + random.randint(1, most)
