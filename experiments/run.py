"""Run the studies' strategies, analyse every capture and compare them: `python experiments/run.py A B C D`."""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tarfile
import time
from collections import deque
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TYPE_CHECKING, Any

from sets import SETS, Experiment, Hardware, forecasts
from table import over_seeds, row_of, write
from waiting import Waiting, discard, is_out_of_memory

if TYPE_CHECKING:
    from collections.abc import Iterable

MIB = 2**20
BASE = "pytorch_ddp"  # with which the other captures of a set are compared, where it has it
Outcome = tuple[str, Experiment, Path, str, float]  # set, run, its folder, how it ended in a word, its seconds
TRACE_SUFFIXES = (".json.gz", ".nsys-rep", ".sqlite")


def main() -> int:
    """Run everything that fits into the time, then analyse and compare; 1 if a run failed unexpectedly."""
    options = _options()
    hardware = _hardware(options)
    deadline = time.monotonic() + options.budget_s
    options.out.mkdir(parents=True, exist_ok=True)
    rows: list[dict[str, Any]] = []
    for set_name, experiment, folder, outcome, wall_s in _outcomes(options, hardware, deadline):
        rows.append(row_of(set_name, experiment.label, experiment.seed, folder, outcome, wall_s))
        print(f"{set_name} {experiment.folder}: {rows[-1]['status']}, {wall_s:.0f} s", flush=True)
        # After every run, so that a call which is cut off leaves the table of what it did.
        write(rows, options.out / "comparison")
    if options.analyse:
        _analyse_all(options.out, options.reports, deadline + 60)
        for set_name in options.sets:
            _forecast(set_name, options, hardware)
            _project(options.out / set_name, options.reports / set_name, hardware.gpus)
            print(_compare(options.out / set_name, options.reports / set_name / "comparison"), flush=True)
    print(write(rows, options.out / "comparison"))
    repeated = over_seeds(rows)
    if repeated:
        print(write(repeated, options.out / "repeats"))
    if options.pack:
        _pack(options)
    return int(any(row["status"] not in {"ok", "oom"} for row in rows))


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sets", nargs="+", choices=SETS, help="which studies")
    parser.add_argument("--only", nargs="+", metavar="RUN", help="only runs with these names")
    parser.add_argument("--out", type=Path, default=Path("profile"), help="traces (default profile)")
    parser.add_argument("--reports", type=Path, default=Path("reports"), help="reports (default reports)")
    parser.add_argument("--repeats", type=int, default=1, help="runs each, with other seeds and only timed (default 1)")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--ranks", type=int, help="use fewer GPUs than there are")
    parser.add_argument("--profiler", choices=("torch", "nsys", "none"), help="for all runs")
    parser.add_argument("--run-timeout-s", type=float, default=150, help="end a run after this (default 150)")
    parser.add_argument("--budget-s", type=float, default=3600, help="start no run after this (default 3600)")
    parser.add_argument("--no-analyse", dest="analyse", action="store_false", help="only run and compare")
    parser.add_argument("--pack", type=Path, metavar="FOLDER", help="also write the results there as one tar in parts")
    parser.add_argument("--pack-traces", action="store_true", help="with --pack: the traces too, not only results")
    parser.add_argument("--part-mib", type=int, default=15, help="size of a part (default 15)")
    arguments = sys.argv[1:]
    # Everything after -- belongs to the runners.
    own = arguments[: arguments.index("--")] if "--" in arguments else arguments
    options = parser.parse_args(own)
    options.extra = arguments[len(own) + 1 :]
    return options


def _hardware(options: argparse.Namespace) -> Hardware:
    if options.device == "cpu":
        return Hardware(options.ranks or 2, memory_gib=0, is_cpu=True)
    program = shutil.which("nvidia-smi")
    if program is None:
        sys.exit("no nvidia-smi, so no GPU: add --device cpu for a small run of everything")
    query = [program, "--query-gpu=memory.total", "--format=csv,noheader,nounits"]
    memory_mib = subprocess.run(query, capture_output=True, text=True, check=True).stdout.split()
    gpus = options.ranks or len(memory_mib)
    if not 2 <= gpus <= len(memory_mib):
        sys.exit(f"the studies need 2 GPUs or more, this host has {len(memory_mib)}")
    return Hardware(gpus, min(map(float, memory_mib)) / 1024)


def _chosen(options: argparse.Namespace, hardware: Hardware) -> Iterable[tuple[str, Experiment]]:
    """The first run of every experiment before the repeats of any: time may end before they do."""
    for set_name in options.sets:
        chosen = [run for run in SETS[set_name](hardware) if not options.only or run.label in options.only]
        yield from ((set_name, run) for run in chosen)
        for seed in range(1, max(options.repeats, *(run.repeats for run in chosen), 1)):
            # A sweep looks for the end of the memory, which seeds do not move.
            again = (run for run in chosen if seed < max(run.repeats, options.repeats) and not run.sweep)
            yield from ((set_name, run.repeated(seed)) for run in again)


def _outcomes(options: argparse.Namespace, hardware: Hardware, deadline: float) -> Iterable[Outcome]:
    """How every run ended, one after the other; the next one's processes load meanwhile."""
    left = deque(_chosen(options, hardware))
    too_large: set[tuple[str, str | None]] = set()
    ahead: Waiting | None = None
    try:
        while left:
            set_name, experiment = left.popleft()
            if (set_name, experiment.sweep) in too_large:
                continue
            folder = options.out / set_name / experiment.folder
            if time.monotonic() > deadline:
                yield set_name, experiment, folder, "not started", 0.0
                continue
            if ahead is None or ahead.folder != folder:
                discard(ahead)
                ahead = _loaded(experiment, folder, hardware, options)
            this, ahead = ahead, None
            this.begin()
            if left and not {"nsys"} & {options.profiler, *left[0][1].arguments}:
                ahead = _loaded(left[0][1], options.out / left[0][0] / left[0][1].folder, hardware, options)
            outcome, wall_s = this.outcome(min(options.run_timeout_s, max(30.0, deadline + 30 - time.monotonic())))
            yield set_name, experiment, folder, outcome, wall_s
            if experiment.sweep and is_out_of_memory(folder):
                too_large.add((set_name, experiment.sweep))
    finally:
        discard(ahead)


def _loaded(experiment: Experiment, folder: Path, hardware: Hardware, options: argparse.Namespace) -> Waiting:
    arguments = ["--strategy", experiment.strategy, "--out", str(folder), "--seed", str(experiment.seed)]
    arguments += experiment.arguments
    if hardware.is_cpu and "--device" not in experiment.arguments:
        arguments += ["--device", "cpu"]
    if options.profiler:
        arguments += ["--profiler", options.profiler]
    ranks = experiment.ranks or hardware.gpus
    return Waiting.load(folder, [*arguments, *options.extra], ranks, dict(experiment.environment))


def _analyse_all(traces: Path, reports: Path, deadline: float) -> None:
    """A report of every run that left traces, several at a time; a failure is printed and the next one follows."""
    folders = [path.parent for path in sorted(traces.glob("*/*/run.json"))]
    captured = [folder for folder in folders if _has_traces(folder)]
    with ThreadPoolExecutor(max_workers=max(1, (os.cpu_count() or 2) // 4)) as pool:
        targets = [reports / folder.relative_to(traces) for folder in captured]
        for outcome in pool.map(_analyse, captured, targets, [deadline] * len(captured)):
            print(outcome, flush=True)


def _has_traces(folder: Path) -> bool:
    return any(folder.glob("rank_*/*.json*")) or any(folder.glob("*.sqlite"))


def _analyse(folder: Path, target: Path, deadline: float) -> str:
    left_s = deadline - time.monotonic()
    if left_s <= 0:
        return f"report of {folder}: not started"
    command = [sys.executable, "-m", "traceanalyzer.cli", "--trace-dir", str(folder), "--output", str(target)]
    command += _complete_steps(folder)
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=left_s)
    except subprocess.TimeoutExpired:
        return f"report of {folder}: timed out"
    last_line = (done.stdout + done.stderr).strip().splitlines()[-1:] or [""]
    return f"report of {folder}: {'ok' if done.returncode == 0 else last_line[0]}"


def _forecast(set_name: str, options: argparse.Namespace, hardware: Hardware) -> None:
    """What the replay says of the set's changes, among the tables of the run that it replayed."""
    found: dict[Path, list[dict[str, Any]]] = {}
    for forecast in forecasts(set_name, hardware.gpus):
        folder = options.out / set_name / forecast.before
        command = [sys.executable, "-m", "traceanalyzer.cli", "what-if", str(folder), *forecast.options, "--json"]
        if (folder / "run.json").exists():
            command += _complete_steps(folder)
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"forecast of {folder}: {done.stderr.strip()}", flush=True)
            continue
        answer = json.loads(done.stdout)
        row = {"after": forecast.after, "asked": ", ".join(answer["changes"])}
        row |= {name: answer[name] for name in ("before_ns", "after_ns", "error_ns", "is_bound")}
        found.setdefault(options.reports / set_name / forecast.before / "tables", []).append(row)
    for tables, rows in found.items():
        tables.mkdir(parents=True, exist_ok=True)
        write(rows, tables / "forecasts")


def _project(folder: Path, reports: Path, gpus: int) -> None:
    """The step on all GPUs that each capture of fewer leads to expect, among the tables of its report."""
    for tables in sorted(reports.glob("*_2_gpus/tables")):
        capture = folder / tables.parent.name
        command = [sys.executable, "-m", "traceanalyzer.cli", "tools", "project", str(capture), "--to", str(gpus)]
        done = subprocess.run([*command, "--json"], capture_output=True, text=True, check=False)
        if done.returncode:
            print(f"projection of {capture}: {done.stderr.strip()}", flush=True)
        else:
            write(json.loads(done.stdout)["expected"]["ranks"], tables / "projection")


def _compare(folder: Path, target: Path) -> str:
    """The set's captures with the first of them that has several ranks: what the studies' tables do not say."""
    facts = {path.parent: json.loads(path.read_text()) for path in sorted(folder.glob("*/run.json"))}
    facts = {run: own for run, own in facts.items() if own["model"] and own["status"] == "ok"}
    # A run out of memory leaves a snapshot in a rank's folder, and no trace.
    several = [run for run in facts if _has_traces(run) and facts[run]["world_size"] > 1]
    same = [run for run in several if facts[run]["world_size"] == facts[several[0]]["world_size"]]
    if len(same) < 2:
        return f"comparison of {folder}: fewer than two captures of as many ranks"
    runs = sorted(same, key=lambda run: (run.name != BASE, run.name))
    command = [sys.executable, "-m", "traceanalyzer.cli", "diff", *map(str, runs), "--output", str(target), "--force"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        return f"comparison of {folder}: {(done.stderr or done.stdout).strip()}"
    left_out = sorted(path.parent.name for path in folder.glob("*/run.json") if path.parent not in same)
    why = (
        f"\nNot in it, for they left no trace or have another number of ranks: {', '.join(left_out)}."
        if left_out
        else ""
    )
    return done.stdout + why


def _complete_steps(folder: Path) -> list[str]:
    """Only whole steps where rates and overlaps of copies are read: those tables are of all that a report looks at.

    On CPUs nothing is copied to a GPU, and no step has operations of one.
    """
    facts = json.loads((folder / "run.json").read_text())
    if not facts["transfer"] or facts["gpu"] is None:
        return []
    first = facts["profile"]["wait"] + facts["profile"]["warmup"]
    return ["--steps", f"{first}:{max(first, first + facts['profile']['active'] - 2)}"]


def _pack(options: argparse.Namespace) -> None:
    """Tables, reports and logs, and traces if asked for, as one tar in parts: `cat captures.tar.* | tar x`."""

    def chosen(member: tarfile.TarInfo) -> tarfile.TarInfo | None:
        return member if options.pack_traces or not member.name.endswith(TRACE_SUFFIXES) else None

    options.pack.mkdir(parents=True, exist_ok=True)
    whole = options.pack / "captures.tar"
    with tarfile.open(whole, "w") as archive:
        for folder in (options.out, options.reports):
            if folder.exists():
                archive.add(folder, arcname=folder.name, filter=chosen)
    with whole.open("rb") as file:
        for number, part in enumerate(iter(lambda: file.read(options.part_mib * MIB), b"")):
            (options.pack / f"captures.tar.{number:02}").write_bytes(part)
    whole.unlink()


if __name__ == "__main__":
    sys.exit(main())
