"""Mutations of a trace: cells of other types or extreme values, rows, tables, and bytes."""

from __future__ import annotations

import io
import json
import sqlite3
import zipfile
import zlib
from collections.abc import Callable
from contextlib import closing
from random import Random

import numpy as np

from tests.fuzz.mutations import extremes, octets, tokens

Cell = str | bytes | int | float | None


def mutated(random: Random, content: bytes, other: bytes) -> tuple[bytes, str]:
    """Returns the file after some mutations, and their names. `other` is another trace."""
    if random.random() < 0.1:
        return octets.mutated(random, content, other)
    names = []
    with closing(sqlite3.connect(":memory:")) as database:
        database.deserialize(content)
        for _ in range(random.choice((1, 1, 2, 3))):
            mutation = random.choice(MUTATIONS)
            try:
                mutation(random, database)
            except sqlite3.Error:  # a constraint holds: the next mutation may do more
                continue
            names.append(mutation.__name__)
        database.commit()
        return database.serialize(), "+".join(names)


def cell(random: Random, database: sqlite3.Connection) -> None:
    """Gives a cell any value of any type."""
    table, column, row, _ = _picked(random, database)
    value: Cell = random.choice((
        None, extremes.integer(random), extremes.floating(random), extremes.text(random), b"",
        random.randbytes(20), str(extremes.integer(random)), "[]", "{}", "null",
    ))  # fmt: skip
    _set(database, table, column, row, value)


def number(random: Random, database: sqlite3.Connection) -> None:
    """Gives a cell that holds a number an extreme one."""
    table, column, row, value = _picked(random, database, (int, float))
    draw = extremes.integer if isinstance(value, int) else extremes.floating
    _set(database, table, column, row, draw(random))


def text(random: Random, database: sqlite3.Connection) -> None:
    """Changes a part of a text, which may be JSON."""
    table, column, row, value = _picked(random, database, (str,))
    changed, _ = tokens.mutated(random, str(value).encode(), b"")
    _set(database, table, column, row, changed.decode("utf-8", "replace"))


def record(random: Random, database: sqlite3.Connection) -> None:
    """Changes a value anywhere in a cell of JSON, so that it stays JSON."""
    table, column, row, value = _picked(random, database, (str,))
    try:
        tree = json.loads(str(value))
    except ValueError:
        return text(random, database)
    changed = _changed(random, tree, random.randint(1, 4))
    return _set(database, table, column, row, json.dumps(changed))


def blob(random: Random, database: sqlite3.Connection) -> None:
    """Changes compressed times or arrays, and compresses them again."""
    table, column, row, value = _picked(random, database, (bytes,))
    assert isinstance(value, bytes)
    if value.startswith(b"PK"):
        _set(database, table, column, row, _archive(random, value))
        return
    try:
        times = np.frombuffer(zlib.decompress(value), "<f8").copy()
    except (zlib.error, ValueError):
        _set(database, table, column, row, octets.mutated(random, value, b"")[0])
        return
    if random.random() < 0.3 or not times.size:
        times = np.resize(times, random.choice((0, 1, len(times) + 1, 5_000)))
    for _ in range(random.choice((0, 1, 3))):
        if times.size:
            times[random.randrange(times.size)] = extremes.floating(random)
    if random.random() < 0.2:
        times[:] = extremes.floating(random)
    _set(database, table, column, row, zlib.compress(times.tobytes()))


def exchange(random: Random, database: sqlite3.Connection) -> None:
    """Puts the value of a cell into another cell, of any column."""
    *_, value = _picked(random, database)
    table, column, row, _ = _picked(random, database)
    _set(database, table, column, row, value)


def delete_rows(random: Random, database: sqlite3.Connection) -> None:
    table, _, row, _ = _picked(random, database)
    if random.random() < 0.8:
        database.execute(f'DELETE FROM "{table}" WHERE rowid = ?', (row,))
    else:
        database.execute(f'DELETE FROM "{table}"')


def double_row(random: Random, database: sqlite3.Connection) -> None:
    table, _, row, _ = _picked(random, database)
    columns = _columns(database, table)
    values = [extremes.integer(random) if random.random() < 0.5 else f'"{columns[0]}"']
    values += [f'"{column}"' for column in columns[1:]]
    selected = f'SELECT {", ".join(map(str, values))} FROM "{table}" WHERE rowid = ?'
    database.execute(f'INSERT INTO "{table}" {selected}', (row,))


def column(random: Random, database: sqlite3.Connection) -> None:
    """Adds, removes or renames a column."""
    table = random.choice(_tables(database))
    name = random.choice(_columns(database, table))
    other = extremes.text(random).replace('"', "").replace("\0", "") or "x"
    database.execute(random.choice((
        f'ALTER TABLE "{table}" ADD COLUMN "{other}" TEXT',
        f'ALTER TABLE "{table}" DROP COLUMN "{name}"',
        f'ALTER TABLE "{table}" RENAME COLUMN "{name}" TO "{other}"',
    )))  # fmt: skip


def table(random: Random, database: sqlite3.Connection) -> None:
    """Drops or adds a table or another object."""
    name = random.choice(_tables(database))
    database.execute(random.choice((
        f'DROP TABLE "{name}"', 'CREATE TABLE "more" (a TEXT)', "CREATE VIEW v AS SELECT 1",
        f'ALTER TABLE "{name}" RENAME TO "other"', f'CREATE INDEX i ON "{name}" (rowid)',
        "PRAGMA user_version = 99",
    )))  # fmt: skip


MUTATIONS: tuple[Callable[[Random, sqlite3.Connection], None], ...] = (
    cell, cell, number, number, number, text, text, record, record, record, record, blob, blob,
    exchange, delete_rows, double_row, column, table,
)  # fmt: skip


def _picked(
    random: Random, database: sqlite3.Connection, kinds: tuple[type, ...] = (object,)
) -> tuple[str, str, int, Cell]:
    """A cell of one of these types, with its table, column and row; raises sqlite3.Error if none.

    Tables with few rows are picked as often as those with many.
    """
    tables = _tables(database)
    random.shuffle(tables)
    for name in tables:
        columns = _columns(database, name)
        quoted = ", ".join(f'"{each}"' for each in columns)
        rows = database.execute(f'SELECT rowid, {quoted} FROM "{name}"').fetchall()
        cells = [
            (name, each, row[0], value)
            for row in rows
            for each, value in zip(columns, row[1:], strict=True)
            if isinstance(value, kinds)
        ]
        if cells:
            return random.choice(cells)
    raise sqlite3.DataError("no such cell")


def _tables(database: sqlite3.Connection) -> list[str]:
    query = "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name"
    return [name for (name,) in database.execute(query)]


def _columns(database: sqlite3.Connection, table: str) -> list[str]:
    return [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]


def _set(database: sqlite3.Connection, table: str, column: str, row: int, value: Cell) -> None:
    query = f'UPDATE "{table}" SET "{column}" = ? WHERE rowid = ?'
    database.execute(query, (value, row))


def _changed(random: Random, tree: object, depth: int) -> object:
    """The JSON with one value changed, at most `depth` levels down."""
    if isinstance(tree, dict) and tree and depth:
        key = random.choice(sorted(tree))
        rest = {name: value for name, value in tree.items() if name != key}
        match random.randrange(6):
            case 0:
                return rest
            case 1:
                return {**rest, extremes.text(random): tree[key]}
        return {**tree, key: _changed(random, tree[key], depth - 1)}
    if isinstance(tree, list) and tree and depth:
        place = random.randrange(len(tree))
        match random.randrange(6):
            case 0:
                return tree[:place] + tree[place + 1 :]
            case 1:
                return tree * 2
        return [*tree[:place], _changed(random, tree[place], depth - 1), *tree[place + 1 :]]
    return random.choice((
        extremes.integer(random), extremes.floating(random), extremes.text(random), None, True,
        [], {}, [tree], {"a": tree},
    ))  # fmt: skip


def _archive(random: Random, content: bytes) -> bytes:
    """An .npz with an array of other values, another shape or another type, or without it."""
    with np.load(io.BytesIO(content)) as loaded:
        arrays = {name: loaded[name].copy() for name in loaded.files}
    name = random.choice(sorted(arrays) or ["x"])
    array = arrays.pop(name, np.zeros(0, np.int64))
    match random.randrange(6):
        case 0:
            pass
        case 1:
            arrays[name] = array[1:] if array.ndim else array
        case 2:
            arrays[name] = array.astype(random.choice(("<f8", "<i4", "bool", "<U3", "<c16")))
        case 3:
            arrays[name] = array.reshape(1, *array.shape)
        case _:
            flat = array.reshape(-1)
            for _ in range(random.choice((1, 3, 30)) if flat.size else 0):
                flat[random.randrange(flat.size)] = extremes.integer(random)
            arrays[name] = flat.reshape(array.shape)
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w") as archive:  # np.savez writes the time
        for each, values in arrays.items():
            inner = io.BytesIO()
            np.save(inner, values)
            archive.writestr(zipfile.ZipInfo(f"{each}.npy"), inner.getvalue())
    return stream.getvalue()
