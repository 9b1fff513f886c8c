"""How fast a large Nsight Systems database is read: the sample, repeated until it has the wanted kernels.

`python benchmarks/nsys_read.py` repeats the kernels to 2 million; `… 300000 --with-host` repeats the copies, API calls
and NVTX ranges as well.
"""

import argparse
import resource
import shutil
import sqlite3
import tempfile
import time
from contextlib import closing
from pathlib import Path

from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import nsys
from traceanalyzer.readers.base import RankHint

SAMPLE = Path(__file__).parents[1] / "tests" / "captures" / "nsys_ddp" / "ddp.sqlite"
KERNELS = "CUPTI_ACTIVITY_KIND_KERNEL"
HOST_TABLES = ("CUPTI_ACTIVITY_KIND_MEMCPY", "CUPTI_ACTIVITY_KIND_MEMSET", "CUPTI_ACTIVITY_KIND_RUNTIME", "NVTX_EVENTS")
LENGTH_NS, CORRELATIONS = 200_000_000, 100_000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernels", type=int, nargs="?", default=2_000_000)
    parser.add_argument("--with-host", action="store_true", help="repeat API calls, copies and NVTX ranges too")
    parser.add_argument("--runs", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "large.sqlite")
        rows = repeat(path, options.kernels, (KERNELS, *HOST_TABLES) if options.with_host else (KERNELS,))
        print(f"{path.stat().st_size / 1e6:.0f} MB; " + ", ".join(f"{count} {name}" for name, count in rows.items()))
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(options.runs):
            print(measured(path))
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        print(f"peak memory {peak / 1024:.0f} MiB, of which {before / 1024:.0f} before reading")


def repeat(path: Path, kernels: int, tables: tuple[str, ...]) -> dict[str, int]:
    """Write the sample with its rows repeated, each time later and with other correlation and operator ids."""
    shutil.copy(SAMPLE, path)
    with closing(sqlite3.connect(path)) as database:
        database.executescript("PRAGMA journal_mode=OFF; PRAGMA synchronous=OFF;")
        (held,) = database.execute(f"SELECT count(*) FROM {KERNELS}").fetchone()
        for table in tables:
            columns = [row[1] for row in database.execute(f"PRAGMA table_info({table})")]
            shifted = ", ".join(SHIFTS.get(column, f'"{column}"') for column in columns)
            database.execute(f"CREATE TEMP TABLE once AS SELECT * FROM {table}")
            for number in range(1, max(1, round(kernels / held))):
                database.execute(f"INSERT INTO {table} SELECT {shifted} FROM once", {"n": number})
            database.execute("DROP TABLE once")
        database.commit()
        return {table: database.execute(f"SELECT count(*) FROM {table}").fetchone()[0] for table in tables}


SHIFTS = {
    "start": f"start + :n * {LENGTH_NS}",
    "end": f'"end" + :n * {LENGTH_NS}',
    "correlationId": f"correlationId + :n * {CORRELATIONS}",
    "text": "replace(text, 'op_id = ', 'op_id = ' || :n)",
}


def measured(path: Path) -> str:
    start = time.perf_counter()
    nsys.peek(path)
    peeked = time.perf_counter()
    cpu = time.process_time()
    rows = sum(len(trace.gpu_ops) for trace in nsys.read(path, RankHint(0, "benchmark"), KindRules()))
    seconds, cpu = time.perf_counter() - peeked, time.process_time() - cpu
    speed = rows / seconds / 1e6
    return (
        f"peek {peeked - start:.2f} s; read {rows} GPU rows in {seconds:.2f} s ({cpu:.2f} s CPU): {speed:.2f} M rows/s"
    )


if __name__ == "__main__":
    main()
