"""Damage inputs and see what becomes of them.

python -m tests.fuzz                         # ten thousand cases of every kind of input: hours
python -m tests.fuzz kineto --cases 500      # fewer, of one kind
python -m tests.fuzz kineto --seed 1234 --cases 1 --keep odd    # one case again, its files kept in `odd`
python -m tests.fuzz --result docs/reliability.json     # keep the counts, from which the page is written
"""

import argparse
import json
import random
import shutil
import sys
import tempfile
import time
from collections import Counter
from pathlib import Path

from tests.fuzz.outcome import Outcome, judged
from tests.fuzz.targets import TARGETS


def case(name: str, seed: int, folder: Path) -> Outcome:
    """One damaged input, made in an empty folder, and what became of it."""
    return judged(TARGETS[name].prepare(random.Random(f"{name} {seed}"), folder))


def campaign(
    name: str, seeds: range, keep: Path | None = None, limit_s: float = 1e9
) -> tuple[Counter[str], dict[str, tuple[int, Outcome]]]:
    """Outcomes of many cases, and the first case of each bug, by place."""
    counts: Counter[str] = Counter()
    bugs: dict[str, tuple[int, Outcome]] = {}
    began = time.monotonic()
    with tempfile.TemporaryDirectory(dir="/dev/shm" if Path("/dev/shm").is_dir() else None) as place:
        for seed in seeds:
            folder = keep or Path(place, "case")
            shutil.rmtree(folder, ignore_errors=True)
            folder.mkdir(parents=True)
            found = case(name, seed, folder)
            counts[found.what] += 1
            if not found.is_fine:
                counts[f"at {found.what}: {found.place}"] += 1
                bugs.setdefault(f"{found.what}: {found.place}", (seed, found))
            if time.monotonic() - began > limit_s:
                break
    return counts, bugs


def main() -> int:
    """Run campaigns; the exit code is 1 when a bug was found."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("names", nargs="*", metavar="KIND", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--seconds", type=float, default=1e9, help="for each kind of input, at most")
    parser.add_argument("--seed", type=int, default=0, help="of the first case")
    parser.add_argument("--keep", type=Path, help="folder for the last case's files")
    parser.add_argument("--result", type=Path, help="JSON file that takes up the counts")
    parser.add_argument("--stories", action="store_true", help="show each bug's traceback")
    given = parser.parse_args()
    found_bugs = False
    for name in given.names or TARGETS:
        began = time.monotonic()
        counts, bugs = campaign(name, range(given.seed, given.seed + given.cases), given.keep, given.seconds)
        total = sum(count for what, count in counts.items() if not what.startswith("at "))
        shown = ", ".join(f"{count} {what}" for what, count in counts.most_common() if not what.startswith("at "))
        print(f"{name}: {total} cases in {time.monotonic() - began:.0f} s: {shown}", flush=True)
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
            _kept(given.result, name, given.seed, counts)
    return int(found_bugs)


def _kept(path: Path, name: str, seed: int, counts: Counter[str]) -> None:
    """Take up a campaign's counts in a file, in place of an earlier one of the same kind."""
    known = json.loads(path.read_text()) if path.is_file() else {}
    own = {what: count for what, count in sorted(counts.items()) if not what.startswith("at ")}
    known[name] = {"what": TARGETS[name].what, "first_seed": seed, **own}
    path.write_text(json.dumps(known, indent=1, ensure_ascii=False) + "\n")


if __name__ == "__main__":
    sys.exit(main())
