"""Damage inputs and see what becomes of them.

python -m tests.fuzz                         # ten thousand cases of every kind of input: hours
python -m tests.fuzz --workers 16 --seconds 20   # as many as fit into twenty seconds a kind, on sixteen cores
python -m tests.fuzz kineto --cases 500      # fewer, of one kind
python -m tests.fuzz kineto --seed 1234 --cases 1 --keep odd    # one case again, its files kept in `odd`
python -m tests.fuzz --result tests/fuzz/result.json     # keep the counts, from which the page is written
python -m tests.fuzz summaries --seed 5000 --cases 5000 --result tests/fuzz/result.json --add   # the second half
"""

import argparse
import gc
import json
import multiprocessing
import os
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterable, Iterator
from multiprocessing import connection
from multiprocessing.connection import Connection
from pathlib import Path
from typing import TYPE_CHECKING, cast

from tests.fuzz.outcome import ENDED, Outcome, judged
from tests.fuzz.targets import TARGETS

if TYPE_CHECKING:
    from multiprocessing.process import BaseProcess


def case(name: str, seed: int, folder: Path) -> Outcome:
    """One damaged input, made in an empty folder, and what became of it."""
    return judged(TARGETS[name].prepare(random.Random(f"{name} {seed}"), folder))


Case = tuple[int, Outcome, int]
"""Seed, what became of it, and how many milliseconds of the clock it took."""

Counts = Counter[str]
SLOWEST = "at most ms"
"""Among the counts: what the slowest case took by the clock."""
Bugs = dict[str, tuple[int, Outcome]]


def campaign(cases: Iterable[Case]) -> tuple[Counts, Bugs]:
    """Outcomes of many cases, and the first case of each bug, by place."""
    counts: Counts = Counter()
    bugs: Bugs = {}
    for seed, found, took_ms in cases:
        counts[SLOWEST] = max(counts[SLOWEST], took_ms)
        counts[found.what] += 1
        if not found.is_fine:
            where = f"{found.what}: {found.place}"
            counts[f"at {where}"] += 1
            bugs[where] = min(bugs.get(where, (seed, found)), (seed, found), key=lambda one: one[0])
    return counts, bugs


def tried(name: str, seeds: Iterable[int], folder: Path, ends_s: float) -> Iterator[Case]:
    """Cases one after the other, until the clock (`time.monotonic`) is at `ends_s`."""
    for seed in seeds:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        began = time.monotonic()
        found = case(name, seed, folder)
        ended = time.monotonic()
        yield seed, found, round(1000 * (ended - began))
        if ended > ends_s:
            return


def spread(name: str, seeds: range, workers: int, place: Path, ends_s: float) -> Iterator[Case]:
    """The same by several processes, as they come; one that ends by itself is a bug of the case that it was at."""
    forked = multiprocessing.get_context("fork")
    waiting = [(number, seeds[number::workers]) for number in range(workers)]
    running: dict[Connection, tuple[BaseProcess, int, range]] = {}
    while waiting or running:
        for number, left in waiting:
            here, there = forked.Pipe(duplex=False)
            process = forked.Process(target=_sent, args=(there, name, left, place / str(number), ends_s), daemon=True)
            process.start()
            there.close()
            running[here] = process, number, left
        waiting = []
        for here in cast("list[Connection]", connection.wait(list(running))):
            process, number, left = running[here]
            try:
                one: Case = here.recv()
            except EOFError:
                del running[here]
                process.join()
                if process.exitcode and left:
                    yield left[0], Outcome(ENDED, f"exit code {process.exitcode}"), 0
                    waiting.append((number, left[1:]))
            else:
                running[here] = process, number, left[left.index(one[0]) + 1 :]
                yield one


def _sent(there: Connection, name: str, seeds: range, folder: Path, ends_s: float) -> None:
    _alone()
    for one in tried(name, seeds, folder, ends_s):
        there.send(one)


def _alone() -> None:
    """A worker has one core: no library may take more, and what all share is not looked through for garbage."""
    import pyarrow as pa

    pa.set_cpu_count(1)
    pa.set_io_thread_count(1)
    gc.freeze()


def main() -> int:
    """Run campaigns; the exit code is 1 when a bug was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="KIND", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9, help="for each kind of input, at most")
    parser.add_argument("--workers", type=int, default=1, help="processes (default: 1)")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--keep", type=Path, help="folder for the last case's files")
    parser.add_argument("--result", type=Path, help="JSON file that takes up the counts")
    parser.add_argument("--add", action="store_true", help="to the counts that the file has, of seeds before these")
    parser.add_argument("--stories", action="store_true", help="show each bug's traceback")
    given = parser.parse_args()
    found_bugs = False
    for name in given.names or TARGETS:
        began = time.monotonic()
        seeds = range(given.seed, given.seed + given.cases)
        with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
            folder, ends_s = given.keep or Path(place, "case"), began + given.seconds
            if given.workers > 1 and given.keep is None:
                campaign(tried(name, seeds[:2], folder, ends_s))  # what is made once is made before the processes part
                counts, bugs = campaign(spread(name, seeds, given.workers, Path(place), ends_s))
            else:
                counts, bugs = campaign(tried(name, seeds, folder, ends_s))
        total = sum(count for what, count in counts.items() if not what.startswith("at "))
        shown = ", ".join(f"{count} {what}" for what, count in counts.most_common() if not what.startswith("at "))
        print(
            f"{name}: {total} cases in {time.monotonic() - began:.0f} s, the slowest in {counts[SLOWEST]} ms: {shown}",
            flush=True,
        )
        for place, (seed, outcome) in bugs.items():
            found_bugs = True
            print(f"  {counts['at ' + place]} × {place}: first --seed {seed}", flush=True)
            print(
                outcome.story[-4000:]
                if given.stories
                else "    " + (outcome.story.strip().splitlines() or [""])[-1][:300],
                flush=True,
            )
        if given.result:
            _kept(given.result, name, given.seed, counts, adds=given.add)
    return int(found_bugs)


def _kept(path: Path, name: str, seed: int, counts: Counts, *, adds: bool) -> None:
    """Take up a campaign's counts in a file, in place of earlier ones of the same kind or added to them."""
    known = json.loads(path.read_text()) if path.is_file() else {}
    own = {what: count for what, count in sorted(counts.items()) if not what.startswith("at ")}
    earlier = known.get(name, {}) if adds else {}
    for what in earlier.keys() - {"what", "first_seed"}:
        own[what] = own.get(what, 0) + earlier[what]
    known[name] = {"what": TARGETS[name].what, "first_seed": earlier.get("first_seed", seed), **own}
    path.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    for library in ("OMP", "OPENBLAS", "MKL"):
        os.environ.setdefault(f"{library}_NUM_THREADS", "1")
    sys.exit(main())
