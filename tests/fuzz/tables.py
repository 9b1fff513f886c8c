"""Databases and folders of Parquet files, damaged."""

import random
import shutil
import sqlite3
from contextlib import closing, suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from tests.fuzz.mutations import bytes_mutated

_CELLS = (None, -1, 0, 1, 2**31, 2**62, 2**63 - 1, -(2**63), 1.5, float("inf"), "", "x", "12", "-3.5", b"", b"\xff\xfe\x00", b"\x01" * 40,
          "\u202e", "a" * 3000, "</script>", "\x1b[31m", b"text \xe9")  # fmt: skip


def damage_database(rng: random.Random, path: Path) -> None:
    """Change one to three things of a database, or its bytes."""
    if rng.random() < 0.3:
        path.write_bytes(bytes_mutated(rng, path.read_bytes()))
        return
    with closing(sqlite3.connect(path)) as database:
        for _ in range(rng.choice((1, 1, 2, 3))):
            with suppress(sqlite3.Error):
                rng.choice(_DATABASE)(rng, database)
        database.commit()
    if rng.random() < 0.05:
        path.with_name(path.name + rng.choice(("-journal", "-wal", "-shm"))).write_bytes(rng.randbytes(600))
    if rng.random() < 0.1:
        path.write_bytes(bytes_mutated(rng, path.read_bytes()))


def _table(rng: random.Random, database: Any) -> str:
    return rng.choice([row[0] for row in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")])


def _column(rng: random.Random, database: Any, table: str) -> str:
    return rng.choice([row[1] for row in database.execute(f'PRAGMA table_info("{table}")')])


def _cell(rng: random.Random, database: Any) -> None:
    table = _table(rng, database)
    column = _column(rng, database, table)
    where = rng.choice(("", f' WHERE rowid = (SELECT min(rowid) FROM "{table}")', " WHERE rowid % 2"))
    database.execute(f'UPDATE "{table}" SET "{column}" = ?{where}', (rng.choice(_CELLS),))


def _shift(rng: random.Random, database: Any) -> None:
    table = _table(rng, database)
    column = _column(rng, database, table)
    database.execute(
        f'UPDATE "{table}" SET "{column}" = "{column}" {rng.choice(("- 100", "* -1", "+ 1", "* 1000000", "<< 40", "|| 0"))} WHERE rowid % 2'
    )


def _text_of_bytes(rng: random.Random, database: Any) -> None:
    table = _table(rng, database)
    database.execute(
        f'UPDATE "{table}" SET "{_column(rng, database, table)}" = CAST(x\'{rng.choice(("ff", "80c3", "ed a0 80")).replace(" ", "")}\' AS TEXT)'
    )


def _drop(rng: random.Random, database: Any) -> None:
    database.execute(f'DROP TABLE "{_table(rng, database)}"')


def _drop_column(rng: random.Random, database: Any) -> None:
    table = _table(rng, database)
    database.execute(f'ALTER TABLE "{table}" DROP COLUMN "{_column(rng, database, table)}"')


def _rename(rng: random.Random, database: Any) -> None:
    table = _table(rng, database)
    if rng.random() < 0.5:
        database.execute(f'ALTER TABLE "{table}" RENAME TO "{rng.choice(("x", "CUPTI_ACTIVITY_KIND_KERNEL2", "a b"))}"')
    else:
        database.execute(
            f'ALTER TABLE "{table}" RENAME COLUMN "{_column(rng, database, table)}" TO "{rng.choice(("x", "start", "end"))}"'
        )


def _view(rng: random.Random, database: Any) -> None:
    table = _table(rng, database)
    database.execute(f'ALTER TABLE "{table}" RENAME TO "real"')
    database.execute(rng.choice((
        f'CREATE VIEW "{table}" AS SELECT * FROM real',
        f'CREATE VIEW "{table}" AS WITH RECURSIVE c(x) AS (SELECT 1 UNION ALL SELECT x + 1 FROM c) SELECT * FROM real, c',
        f'CREATE VIEW "{table}" AS SELECT * FROM missing',
    )))  # fmt: skip


def _generated(rng: random.Random, database: Any) -> None:
    """A column whose values nobody stored, and which can be of any length."""
    table, length = _table(rng, database), rng.choice((8, 100_000, 300_000_000))
    names = [row[1] for row in database.execute(f'PRAGMA table_info("{table}")')]
    column = rng.choice(names)
    how = rng.choice((f"hex(zeroblob({length}))", f"CAST(zeroblob({length}) AS TEXT)", "rowid << 40", "random()"))
    kept = [name for name in names if name != column]
    cells = ", ".join(f'"{name}"' for name in kept)
    database.execute(f'ALTER TABLE "{table}" RENAME TO "stored"')
    database.execute(f'CREATE TABLE "{table}" ({cells}, "{column}" GENERATED ALWAYS AS ({how}) VIRTUAL)')
    database.execute(f'INSERT INTO "{table}" ({cells}) SELECT {cells} FROM "stored"')
    database.execute('DROP TABLE "stored"')


def _trigger(rng: random.Random, database: Any) -> None:
    table = _table(rng, database)
    database.execute(f'CREATE TRIGGER t AFTER INSERT ON "{table}" BEGIN DELETE FROM "{table}"; END')


def _rows(rng: random.Random, database: Any) -> None:
    table = _table(rng, database)
    if rng.random() < 0.5:
        database.execute(f'INSERT INTO "{table}" SELECT * FROM "{table}"')
    else:
        database.execute(f'DELETE FROM "{table}" WHERE rowid % 2 = {rng.randrange(2)}')


def _settings(rng: random.Random, database: Any) -> None:
    database.execute(rng.choice(("PRAGMA user_version = 99", "PRAGMA application_id = 7", "PRAGMA journal_mode = WAL")))


_DATABASE = (
    _cell,
    _cell,
    _cell,
    _cell,
    _shift,
    _shift,
    _text_of_bytes,
    _drop,
    _drop_column,
    _rename,
    _view,
    _generated,
    _trigger,
    _rows,
    _settings,
)


def damage_folder(rng: random.Random, folder: Path) -> None:
    """Change one to three tables of a folder of Parquet files."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        files = sorted(file for file in folder.glob("*.parquet") if file.is_file())
        if files:
            with suppress(pa.ArrowException, OSError):
                rng.choice(_FOLDER)(rng, rng.choice(files))


def _bytes(rng: random.Random, file: Path) -> None:
    file.write_bytes(bytes_mutated(rng, file.read_bytes()))


def _gone(rng: random.Random, file: Path) -> None:
    file.unlink()
    if rng.random() < 0.3:
        file.mkdir()


def _swapped(rng: random.Random, file: Path) -> None:
    other = rng.choice(sorted(one for one in file.parent.glob("*.parquet") if one.is_file()))
    if other != file:
        shutil.copyfile(other, file)


def _retyped(rng: random.Random, file: Path) -> None:
    """A column of other cells: another type, odd values, nested ones."""
    table = pq.read_table(file)
    place = rng.randrange(table.num_columns)
    made = [rng.choice(_ARROW)(rng, value) for value in table.column(place).to_pylist()]
    if rng.random() < 0.7:
        one = rng.choice(_ARROW)
        made = [one(rng, value) for value in table.column(place).to_pylist()]
    column = pa.array(made)
    if rng.random() < 0.15:
        column = column.dictionary_encode()
    pq.write_table(table.set_column(place, table.column_names[place], column), file)


def _lost(rng: random.Random, file: Path) -> None:
    table = pq.read_table(file)
    if table.num_columns > 1:
        pq.write_table(table.remove_column(rng.randrange(table.num_columns)), file)


def _repeated(rng: random.Random, file: Path) -> None:
    """One row, which takes next to nothing however often it is there."""
    row = pq.read_table(file).slice(0, 1)
    count = rng.choice((1000, 100_000))
    pq.write_table(row.take(pa.array([0] * (count if len(row) else 0))), file)


def _emptied(_rng: random.Random, file: Path) -> None:
    pq.write_table(pq.read_table(file).slice(0, 0), file)


def _nudged(rng: random.Random, file: Path) -> None:
    table = pq.read_table(file)
    place = rng.randrange(table.num_columns)
    values = table.column(place).to_pylist()
    if values:
        values[rng.randrange(len(values))] = rng.choice(
            [cell for cell in _CELLS if isinstance(cell, type(values[0])) or cell is None]
        )
        pq.write_table(table.set_column(place, table.column_names[place], pa.array(values)), file)


_ARROW = (
    lambda _r, _v: None, lambda _r, v: str(v), lambda _r, v: f"{v}".encode(), lambda _r, _v: 1.5, lambda _r, _v: float("nan"),
    lambda _r, _v: [1, 2], lambda _r, v: {"x": str(v)}, lambda _r, _v: True, lambda r, _v: r.choice((-1, 2**62, -(2**63), 0)),
    lambda _r, _v: b"\xff\xfe",
)  # fmt: skip

_FOLDER = (_bytes, _bytes, _gone, _swapped, _retyped, _retyped, _retyped, _lost, _emptied, _repeated, _nudged, _nudged)
