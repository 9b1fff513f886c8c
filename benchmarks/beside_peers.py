"""This project beside HolisticTraceAnalysis and traceinsight, in one run on one machine: how cost grows with size and ranks.

    python benchmarks/beside_peers.py --peer HolisticTraceAnalysis=HTA/bin/python --peer traceinsight=TI/bin/python
    python benchmarks/beside_peers.py --quick                               # 12 MB × 1, 2 ranks, without peers: for CI
    python benchmarks/beside_peers.py --sizes 40,370,1500 --ranks 1,8,64,1024 --most-gb 12

Each peer needs an environment of its own, `pip install HolisticTraceAnalysis==0.5.0` or `traceinsight==0.6.0`: both are imported as `hta`, and in
one environment the later overwrites the earlier, which is refused. Traces are a sample's events
repeated. Sizes are of one rank's file in MB; jobs beyond `--most-gb` in all are left out and said. Writes a table and a plot
with machine and date into `--output` (docs/results): speed.md, speed.svg, and speed.json, in which `--quick` runs of CI are kept as artifacts.
"""

import argparse
import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from kineto_speed import repeat

SAMPLE = Path(__file__).parent.parent / "tests" / "captures" / "ddp" / "rank0.json.gz"

EVENT_BYTES = 328
"""Of the sample, on average."""

PEER = """
import sys
from importlib.metadata import distributions
from hta.trace_analysis import TraceAnalysis
here = {{each.metadata["Name"].lower() for each in distributions()}} & {{"holistictraceanalysis", "traceinsight"}}
assert here == {{{name!r}.lower()}}, here
made = TraceAnalysis(trace_dir=sys.argv[1])
made.get_temporal_breakdown(visualize=False)
made.get_comm_comp_overlap(visualize=False)
made.get_gpu_kernel_breakdown(visualize=False)
made.get_idle_time_breakdown(ranks=None, visualize=False)
"""
"""The four of its analyses of which this project's report has a counterpart."""

OURS = "import sys; from traceanalyzer.cli import main; main([*sys.argv[1:], '--quiet'])"


@dataclass(frozen=True)
class Row:
    """One measurement: wall and CPU seconds, and peak memory of one process."""

    what: str
    ranks: int
    file_mb: float
    wall_s: float | None
    cpu_s: float | None
    peak_mb: float | None
    failed: str = ""


def main() -> None:
    options = arguments()
    rows = [row for mb, ranks in jobs(options) for row in measured_job(mb, ranks, options)]
    write(rows, options)


def jobs(options: argparse.Namespace) -> list[tuple[int, int]]:
    pairs = [(mb, ranks) for mb in options.sizes for ranks in options.ranks]
    held = [(mb, ranks) for mb, ranks in pairs if mb * ranks <= 1000 * options.most_gb]
    for mb, ranks in sorted(set(pairs) - set(held)):
        print(f"left out: {ranks} ranks × {mb} MB is more than --most-gb {options.most_gb}")
    return held


def measured_job(mb: int, ranks: int, options: argparse.Namespace) -> list[Row]:
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        traces = Path(folder, "traces")
        size_mb = make(traces, mb, ranks)
        rows = []
        environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache"}
        for what in ("cold", "warm"):
            command = [sys.executable, "-c", OURS, str(traces), "--output", f"{folder}/report"]
            rows.append(run(f"traceanalyzer, {what}", ranks, size_mb, command, environment))
        if ranks == 1:
            load = "import json, sys; json.load(open(sys.argv[1] + '/rank0.json'))"
            rows.append(run("json.load", ranks, size_mb, [sys.executable, "-c", load, str(traces)]))
        for name, python in options.peers:
            command = [python, "-c", PEER.format(name=name), str(traces)]
            rows.append(run(name, ranks, size_mb, command, limit_s=options.limit_s))
    return rows


def make(folder: Path, mb: int, ranks: int) -> float:
    """One file a rank; returns the size of one."""
    folder.mkdir()
    first = folder / "rank0.json"
    repeat(SAMPLE, first, round(mb * 1e6 / EVENT_BYTES))
    with first.open("rb") as file:
        head = file.read(1 << 16)
    place = head.index(b'"rank": 0')
    for rank in range(1, ranks):
        with first.open("rb") as source, (folder / f"rank{rank}.json").open("wb") as target:
            target.write(source.read(place) + b'"rank": %d' % rank)
            source.seek(place + len(b'"rank": 0'))
            shutil.copyfileobj(source, target, 8 << 20)
    return first.stat().st_size / 1e6


def run(what: str, ranks: int, size_mb: float, command: list[str], environment: dict[str, str] | None = None,
        limit_s: float | None = None) -> Row:  # fmt: skip
    """The command in a process of its own; its children count too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    code = f"import resource, subprocess, sys\ndone = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout={limit_s})\nprint(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.returncode)\nprint(done.stderr[-300:], file=sys.stderr)"
    done = subprocess.run(
        [sys.executable, "-c", code, *command], capture_output=True, text=True, env=environment, check=False
    )
    wall_s = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    told = done.stdout.split()
    if done.returncode or told[1] != "0":
        why = (done.stderr.strip().splitlines() or ["?"])[-1][:120]
        print(f"{what}, {ranks} × {size_mb:.0f} MB: failed: {why}")
        return Row(what, ranks, size_mb, None, None, None, why)
    row = Row(what, ranks, size_mb, wall_s, cpu_s, int(told[0]) * 1024 / 1e6)
    print(f"{what}, {ranks} × {size_mb:.0f} MB: {wall_s:.1f} s, CPU {cpu_s:.1f} s, {row.peak_mb:,.0f} MB", flush=True)
    return row


def write(rows: list[Row], options: argparse.Namespace) -> None:
    options.output.mkdir(parents=True, exist_ok=True)
    facts = {
        "date": datetime.now(UTC).strftime("%Y-%m-%d"),
        "machine": f"{platform.machine()}, {len(os.sched_getaffinity(0))} cores, load {os.getloadavg()[0]:.1f} at the end",
        "python": platform.python_version(),
    }
    (options.output / "speed.json").write_text(
        json.dumps({**facts, "rows": [asdict(row) for row in rows]}, indent=1) + "\n"
    )
    names = [name for name, _ in options.peers]
    beside = f"{' and '.join(names)} run four of their analyses." if names else "No peer was measured in this run."
    lines = [
        "# Speed beside peers", "",
        (f"Made by `benchmarks/beside_peers.py` on {facts['date']}: {facts['machine']}; Python {facts['python']}. {beside} This project "
        f"makes its whole report (page, CSV, JSON). Wall time depends on what else the machine does; CPU time less so. {options.note}"), "",
        "| what | ranks | MB a rank | wall s | CPU s | peak MB of one process |", "|---|---:|---:|---:|---:|---:|",
        *(f"| {row.what} | {row.ranks} | {row.file_mb:.0f} | " + (
            f"{row.wall_s:.1f} | {row.cpu_s:.1f} | {row.peak_mb:,.0f} |" if row.wall_s else f"failed: {row.failed} | | |") for row in rows),
        "", "![CPU seconds by gigabytes](speed.svg)", "", *estimate(rows),
    ]  # fmt: skip
    (options.output / "speed.md").write_text("\n".join(lines) + "\n")
    (options.output / "speed.svg").write_text(plot(rows))
    print(f"written: {options.output}/speed.md")


def estimate(rows: list[Row], ranks: int = 10_000, mb: int = 500) -> list[str]:
    """What the measured curves say of a job that nobody has measured."""
    cold = [row for row in rows if row.what == "traceanalyzer, cold" and row.cpu_s]
    if len(cold) < 3:
        return ["An estimate of larger jobs needs three measured ones."]
    matrix = np.array([[1.0, row.ranks, row.ranks * row.file_mb] for row in cold])
    (start, a_rank, a_mb), *_ = np.linalg.lstsq(matrix, np.array([row.cpu_s for row in cold]), rcond=None)
    sure = "" if len(cold) > 3 else " As many unknowns as runs: how far off the line is cannot be told."
    total_s = start + ranks * (a_rank + mb * a_mb)
    return [
        "## Estimate", "",
        f"CPU seconds fitted to the {len(cold)} cold runs above: {start:.2f} + {a_rank:.3f} a rank + {1000 * a_mb:.1f} a GB (read and analysed).{sure}",
        (f"For {ranks:,} ranks × {mb} MB that is {total_s / 3600:.1f} core-hours: {total_s / 60 / 64:.0f} minutes on 64 cores, "
        f"{total_s / 60 / 512:.1f} on 512 (`--scheduler`), if storage gives {ranks * mb / total_s * 64 / 1000:.1f} GB/s to 64 cores. It is a line drawn far beyond "
        f"what was measured ({max(row.ranks for row in cold)} ranks, {max(row.file_mb for row in cold):.0f} MB): putting the ranks' tables together is one "
        "process' work, and its memory holds the small tables of all ranks."),
    ]  # fmt: skip


COLOURS = {"traceanalyzer, cold": "#0072b2", "traceanalyzer, warm": "#56b4e9", "json.load": "#999999",
           "HolisticTraceAnalysis": "#d55e00", "traceinsight": "#cc79a7"}  # fmt: skip


def plot(rows: list[Row]) -> str:
    """CPU seconds by the job's size, both logarithmic: a dot a run."""
    held = [row for row in rows if row.cpu_s]
    if not held:
        return '<svg xmlns="http://www.w3.org/2000/svg"/>'
    x = np.log10([row.ranks * row.file_mb for row in held])
    y = np.log10([row.cpu_s for row in held])
    place = [
        (60 + 480 * (a - x.min()) / max(np.ptp(x), 1e-9), 280 - 240 * (b - y.min()) / max(np.ptp(y), 1e-9))
        for a, b in zip(x, y, strict=True)
    ]
    dots = [f'<circle cx="{a:.0f}" cy="{b:.0f}" r="5" fill="{COLOURS[row.what]}"><title>{row.what}, {row.ranks} × {row.file_mb:.0f} MB: {row.cpu_s:.1f} s CPU</title></circle>'
            for row, (a, b) in zip(held, place, strict=True)]  # fmt: skip
    key = [
        f'<circle cx="575" cy="{40 + 22 * n}" r="5" fill="{colour}"/><text x="588" y="{44 + 22 * n}">{what}</text>'
        for n, (what, colour) in enumerate(COLOURS.items())
    ]
    axes = (f'<text x="60" y="310">{10 ** x.min():.0f} MB</text><text x="540" y="310" text-anchor="end">{10 ** x.max():,.0f} MB in all</text>'
            f'<text x="52" y="284" text-anchor="end">{10 ** y.min():.1f} s</text><text x="52" y="46" text-anchor="end">{10 ** y.max():.0f} s</text>')  # fmt: skip
    return (f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 760 330" font-family="sans-serif" font-size="13"><rect width="760" height="330" fill="#fff"/>'
            f'<path d="M60 30V290H550" stroke="#888" fill="none"/>{"".join(dots)}{"".join(key)}{axes}</svg>\n')  # fmt: skip


def _numbers(text: str) -> list[int]:
    return [int(part) for part in text.split(",")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--sizes", type=_numbers, default=[40, 370])
    parser.add_argument("--ranks", type=_numbers, default=[1, 8])
    parser.add_argument("--most-gb", type=float, default=4)
    parser.add_argument("--limit-s", type=float, default=900)
    parser.add_argument("--peer", dest="peers", action="append", default=[], metavar="NAME=PYTHON",
                        type=lambda text: tuple(text.split("=", 1)))  # fmt: skip
    parser.add_argument("--note", default="", help="a sentence on the circumstances, for the table's head")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--folder", help="where traces are made (default: the temporary folder)")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent.parent / "docs" / "results")
    options = parser.parse_args()
    if options.quick:
        options.sizes, options.ranks, options.peers = [12, 24], [1, 2], []
    return options


if __name__ == "__main__":
    main()
