"""What of an export may be kept in a cache: the tables that are read, and of them nothing of the machine's own words.

An export embeds the environment, the command line, standard error and the names of processes; a copy that outlives the
analysis must not.
"""

import sqlite3
from contextlib import closing
from pathlib import Path

from traceanalyzer.readers.nsys.api import RUNTIME
from traceanalyzer.readers.nsys.counters import COUNTER_TABLES
from traceanalyzer.readers.nsys.diagnostics import DIAGNOSTICS, plain_diagnostic
from traceanalyzer.readers.nsys.gpu_ops import GPU_TABLES, KERNEL, KERNEL_NAMES
from traceanalyzer.readers.nsys.graph_nodes import NODES
from traceanalyzer.readers.nsys.identity import MPI_RANKS
from traceanalyzer.readers.nsys.nvtx import NVTX
from traceanalyzer.readers.nsys.payloads import PAYLOAD_TABLES
from traceanalyzer.readers.nsys.session import EXPORT, SESSION_TABLES, SETTINGS, is_plain_setting
from traceanalyzer.readers.nsys.stream_waits import WAIT_TABLES

_READ = {
    "StringIds", RUNTIME, NVTX, MPI_RANKS, DIAGNOSTICS, EXPORT,
    *GPU_TABLES, NODES, *WAIT_TABLES, *COUNTER_TABLES, *PAYLOAD_TABLES, *SESSION_TABLES,
}  # fmt: skip

_STRINGS = ((KERNEL, KERNEL_NAMES), (RUNTIME, ("nameId",)), (NVTX, ("textId",)))
"""Columns that name the strings which are read."""


def scrub(path: Path) -> None:
    """Take out of a database everything that no reader reads, and rewrite the file so that nothing of it is left."""
    with closing(sqlite3.connect(path)) as database:
        tables = {name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'table'")}
        for view in [name for (name,) in database.execute("SELECT name FROM sqlite_master WHERE type = 'view'")]:
            database.execute(f'DROP VIEW "{view}"')
        for table in tables - _READ:
            if not table.startswith("sqlite_"):
                database.execute(f'DROP TABLE "{table}"')
        if "StringIds" in tables:
            database.execute(f"DELETE FROM StringIds WHERE id NOT IN ({_named(database, tables)})")  # noqa: S608
        if EXPORT in tables:
            database.create_function("is_plain", 2, lambda name, value: name in SETTINGS and is_plain_setting(value))
            database.execute(f"DELETE FROM {EXPORT} WHERE NOT is_plain(name, value)")  # noqa: S608
        if DIAGNOSTICS in tables:
            database.create_function("plain", 1, plain_diagnostic)
            database.execute(f"UPDATE {DIAGNOSTICS} SET text = plain(text)")  # noqa: S608
        database.commit()
        database.execute("VACUUM")


def _named(database: sqlite3.Connection, tables: set[str]) -> str:
    """A query for the ids of all strings that events name."""
    queries = []
    for table, columns in _STRINGS:
        held = {row[1] for row in database.execute(f'PRAGMA table_info("{table}")')} if table in tables else set()
        queries += [f"SELECT {name} FROM {table} WHERE {name} NOT NULL" for name in columns if name in held]  # noqa: S608
    return " UNION ".join(queries or ["SELECT NULL WHERE 0"])
