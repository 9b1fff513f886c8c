"""This project beside HolisticTraceAnalysis and traceinsight, in one run on one machine: how cost grows with size and ranks.

    python benchmarks/beside_peers.py                                             # some 20 minutes on two cores
    python benchmarks/beside_peers.py --jobs 1x40,1x370,1x1500,8x40,64x12,512x12  # for a machine with many cores
    python benchmarks/beside_peers.py --jobs 1x370,64x12 --processes 1,2,4,8,16   # how it grows with processes
    python benchmarks/beside_peers.py --jobs 512x12 --no-peers --before ../earlier  # beside an earlier revision
    python benchmarks/beside_peers.py --quick --trend trend.jsonl                 # without peers: for CI

A job is RANKSxMB; `1x370z` is packed with gzip, `1x40n` one database of Nsight Systems (of the GPUs of its sample). With `--processes` the command is run cold with each number of them, in
place of cold and warm; with `--before FOLDER` the package in that folder is measured too, cold. The command makes an environment for each peer below `--environments`
(both are imported as `hta`, so one cannot hold both) and takes those that are there already; a peer that cannot be
installed is left out, and the table says why. Traces are a sample's events repeated. Writes a table and a plot with
machine and date, and an estimate of larger jobs, into `--output` (docs/results): speed.md, speed.svg, speed.json.
With `--trend FILE` the figures are added to that file, and said beside those of the runs before.
"""

import argparse
import gzip
import json
import os
import re
import resource
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
import venv
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import nsys_read
import speed_report

ROOT = Path(__file__).parent.parent

SAMPLE = ROOT / "tests" / "captures" / "ddp" / "rank0.json.gz"

EVENT_BYTES = 328
"""Of the sample, on average."""

KERNEL_BYTES = 325
"""Of the sample of Nsight Systems for each kernel, with what else is recorded beside it."""

MODERATE = "1x12,1x40,1x40z,1x370,8x12,64x12"
QUICK = "1x12,2x12"

FORMS = {"": "", "z": "gzip", "n": "nsys"}
"""How files are written, by the letter of a job."""

_MEASURED = """
import resource, subprocess, sys
try:
    done = subprocess.run(sys.argv[2:], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, timeout=float(sys.argv[1]))
except subprocess.TimeoutExpired:
    print(0, 1)
    sys.exit(f"not done after {sys.argv[1]} s")
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, done.returncode)
print(done.stderr[-300:], file=sys.stderr)
"""


@dataclass(frozen=True)
class Job:
    """So many ranks, each with a file of so many MB of text."""

    ranks: int
    mb: int
    form: str = ""
    """`gzip`, `nsys`, or plain text."""

    @classmethod
    def of(cls, text: str) -> "Job":
        """`8x40`, `1x370z` or `1x40n`."""
        match = re.fullmatch(r"(\d+)x(\d+)([zn]?)", text.strip())
        if match is None or (match[3] == "n" and match[1] != "1"):
            raise argparse.ArgumentTypeError(f"{text!r} is no job such as 8x40, 1x370z or 1x40n")
        return cls(int(match[1]), int(match[2]), FORMS[match[3]])


@dataclass(frozen=True)
class Row:
    """One measurement: wall and CPU seconds, peak memory of one process; of the first process alone where it says so."""

    what: str
    ranks: int
    file_mb: float
    form: str
    wall_s: float | None = None
    cpu_s: float | None = None
    peak_mb: float | None = None
    own_cpu_s: float | None = None
    own_peak_mb: float | None = None
    load: float | None = None
    failed: str = ""


def main() -> None:
    options = arguments()
    pythons, missing = ({}, {}) if options.no_peers else environments(options.environments, dict(options.peer))
    rows: list[Row] = []
    for job in options.jobs:
        rows += measured_job(job, pythons, options)
        speed_report.write([asdict(row) for row in rows], missing, options.output, options.note)  # what there is so far
    print(f"written: {options.output}/speed.md")
    if options.trend:
        print(trend(rows, options.trend))


def measured_job(job: Job, pythons: Mapping[str, str], options: argparse.Namespace) -> list[Row]:
    with tempfile.TemporaryDirectory(dir=options.folder) as folder:
        traces = Path(folder, "traces")
        size_mb = make(traces, job)
        like = Row("", job.ranks, size_mb, job.form)
        rows = ours(Path(folder), traces, like, options)
        first = next(traces.iterdir())
        if job.ranks == 1 and not job.form:
            rows.append(run("json.load", like, [sys.executable, "-c", LOADED, str(first)]))
        for name, python in pythons.items():
            is_parser = name == SIMDJSON
            if job.form == "nsys" or (is_parser and (job.ranks > 1 or job.form)):
                continue  # which it does not read
            target = first if is_parser else traces
            command = [python, "-c", code_of(name), str(target)]
            rows.append(run(name, like, command, limit_s=options.limit_s))
    return rows


def ours(folder: Path, traces: Path, like: Row, options: argparse.Namespace) -> list[Row]:
    """This project's command: cold and warm, or with each number of processes; and an earlier revision's, cold."""
    runs = [(f"traceanalyzer, {count} process{'es' * (count > 1)}", ROOT, count) for count in options.processes]
    runs = runs or [("traceanalyzer, cold", ROOT, None), ("traceanalyzer, warm", ROOT, None)]
    if options.before:
        runs.append(("traceanalyzer before, cold", options.before.resolve(), None))
    rows = []
    for what, package, count in runs:
        if "warm" not in what:
            shutil.rmtree(folder / "cache", ignore_errors=True)
        paths = os.pathsep.join(filter(None, (str(package), os.environ.get("PYTHONPATH"))))
        environment = {**os.environ, "XDG_CACHE_HOME": f"{folder}/cache", "PYTHONPATH": paths}
        command = our_command(folder / "own", traces, folder / "report", jobs=count)
        rows.append(run(what, like, command, environment, own=folder / "own"))
        shutil.rmtree(folder / "report", ignore_errors=True)
    return rows


def make(folder: Path, job: Job) -> float:
    """One file a rank; returns the size of one, of its text."""
    folder.mkdir()
    if job.form == "nsys":
        path, kernels = folder / "job.sqlite", round(job.mb * 1e6 / KERNEL_BYTES)
        nsys_read.repeat(path, kernels, (nsys_read.KERNELS, *nsys_read.HOST_TABLES))
        return path.stat().st_size / 1e6
    first = folder / "rank0.json"
    repeat(SAMPLE, first, round(job.mb * 1e6 / EVENT_BYTES))
    size_mb = first.stat().st_size / 1e6
    with first.open("rb") as file:
        place = file.read(1 << 16).index(b'"rank": 0')
    for rank in range(1, job.ranks):
        with first.open("rb") as source, (folder / f"rank{rank}.json").open("wb") as target:
            target.write(source.read(place) + b'"rank": %d' % rank)
            source.seek(place + len(b'"rank": 0'))
            shutil.copyfileobj(source, target, 8 << 20)
    if job.form == "gzip":
        for path in list(folder.iterdir()):
            with path.open("rb") as source, gzip.open(f"{path}.gz", "wb", compresslevel=4) as target:
                shutil.copyfileobj(source, target, 8 << 20)
            path.unlink()
    return size_mb


def run(what: str, like: Row, command: list[str], environment: dict[str, str] | None = None, limit_s: float = 1e6,
        own: Path | None = None) -> Row:  # fmt: skip
    """The command in a process of its own; those that it starts count too."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, "-c", _MEASURED, str(limit_s), *command],
        capture_output=True, text=True, env=environment, check=False,
    )  # fmt: skip
    wall_s = time.perf_counter() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    told = done.stdout.split()
    job = f"{what}, {like.ranks} × {like.file_mb:.0f} MB{f' {like.form}' if like.form else ''}"
    facts = {"what": what, "ranks": like.ranks, "file_mb": like.file_mb, "form": like.form}
    if done.returncode or told[1] != "0":
        why = (done.stderr.strip().splitlines() or ["?"])[-1][:120]
        print(f"{job}: failed: {why}", flush=True)
        return Row(**facts, failed=why)
    cpu_s = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    own_cpu_s, own_kb = map(float, own.read_text().split()) if own and own.exists() else (None, None)
    peak_mb = int(told[0]) * 1024 / 1e6
    print(f"{job}: {wall_s:.1f} s, CPU {cpu_s:.1f} s, {peak_mb:,.0f} MB", flush=True)
    return Row(**facts, wall_s=wall_s, cpu_s=cpu_s, peak_mb=peak_mb, own_cpu_s=own_cpu_s,
               own_peak_mb=own_kb and own_kb * 1024 / 1e6, load=os.getloadavg()[0])  # fmt: skip


def trend(rows: list[Row], path: Path) -> str:
    """CPU seconds of this run beside the median of those before, which the file keeps; this run is added to it."""
    known = [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []
    facts = {"machine": speed_report.machine(), "date": speed_report.today()}
    now = {f"{row.what}, {row.ranks} × {row.file_mb:.0f} MB": row.cpu_s for row in rows if row.cpu_s}
    with path.open("a") as file:
        file.write(json.dumps({**facts, "cpu_s": now}) + "\n")
    lines = []
    for name, cpu_s in now.items():
        before = [run["cpu_s"][name] for run in known if run["machine"] == facts["machine"] and name in run["cpu_s"]]
        middle = statistics.median(before) if before else None
        beside = "first of this machine" if middle is None else f"{100 * (cpu_s / middle - 1):+.0f}% on {len(before)} runs' {middle:.2f} s"  # fmt: skip
        lines.append(f"{name}: {cpu_s:.2f} s CPU, {beside}")
    return "\n".join(lines)


def jobs(text: str) -> list[Job]:
    """`1x40,8x12` as jobs."""
    return [Job.of(part) for part in text.split(",")]


def counts(text: str) -> list[int]:
    """`1,2,4` as numbers."""
    return [int(part) for part in text.split(",")]


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--jobs", type=jobs, default=None, metavar="RANKSxMB,…", help=f"default: {MODERATE}")
    parser.add_argument("--processes", type=counts, default=(), metavar="N,…", help="--jobs of this project's command")
    parser.add_argument("--before", type=Path, metavar="FOLDER", help="with an earlier revision's package")
    parser.add_argument("--no-peers", action="store_true", help="without other tools; json.load alone")
    parser.add_argument("--limit-s", type=float, default=900, help="a peer that takes longer is ended, and said")
    parser.add_argument("--peer", action="append", default=[], metavar="NAME=PYTHON",
                        type=lambda text: tuple(text.split("=", 1)),
                        help="the interpreter of an environment that exists")  # fmt: skip
    parser.add_argument("--environments", type=Path, default=Path(tempfile.gettempdir(), "benchmark-peers"))
    parser.add_argument("--note", default="", help="a sentence on the circumstances, for the table's head")
    parser.add_argument("--quick", action="store_true", help=f"jobs {QUICK}, no peers")
    parser.add_argument("--trend", type=Path, help="a file that keeps the figures of every run, a line each")
    parser.add_argument("--folder", help="where traces are made (default: the temporary folder)")
    parser.add_argument("--output", type=Path, default=Path(__file__).parent.parent / "docs" / "results")
    options = parser.parse_args()
    options.jobs = options.jobs or jobs(QUICK if options.quick else MODERATE)
    options.no_peers = options.no_peers or options.quick
    return options


# Traces that are made: a sample's events, again and again.


def repeat(sample: Path, target: Path, wanted: int) -> int:
    """Write the sample's events again and again, one after the other in time, in the profiler's own layout."""
    opened = gzip.open if sample.suffix == ".gz" else open
    text = opened(sample).read().decode()
    head, _, rest = text.partition('"traceEvents": [')
    events = re.split(r"(?<=\}),(?=\s*\{\s*\"(?:ph|name)\")", rest[: rest.rindex("]")])
    times = [float(match[1]) for event in events if (match := re.search(r'"ts": (\d+\.\d+)', event))]
    span = max(times) - min(times) + 1000.0
    copies = -(-wanted // len(events))
    with target.open("w", encoding="utf-8") as file:
        file.write(head + '"traceEvents": [')
        for copy in range(copies):
            file.write(",".join(shifted(event, copy, span) for event in events) + ("," if copy + 1 < copies else ""))
        file.write('],\n"traceName": "rank0.json"\n}')
    return len(events) * copies


def shifted(event: str, copy: int, span_us: float) -> str:
    if not copy:
        return event
    event = re.sub(r'"ts": (\d+\.\d+)', lambda m: f'"ts": {float(m[1]) + copy * span_us:.3f}', event, count=1)
    event = re.sub(
        r'("correlation"|"External id"|"id"): (\d+)', lambda m: f"{m[1]}: {int(m[2]) + copy * 10_000_000}", event
    )
    return re.sub(r"ProfilerStep#(\d+)", lambda m: f"ProfilerStep#{int(m[1]) + copy * 10}", event)


# Each tool in an environment of its own, and the code that it runs.


PEERS = {"HolisticTraceAnalysis": "HolisticTraceAnalysis==0.5.0", "traceinsight": "traceinsight==0.6.0"}
"""What to install. Both are imported as `hta`: in one environment the later would overwrite the earlier."""

SIMDJSON = "pysimdjson"

INSTALLED = {**PEERS, SIMDJSON: "pysimdjson>=7"}

_ANALYSES = """
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

_PARSED = "import simdjson, sys; simdjson.Parser().load(sys.argv[1])"

LOADED = "import json, sys; json.load(open(sys.argv[1]))"

OURS = """
import resource, sys
from pathlib import Path
from traceanalyzer.__main__ import main
place = sys.argv.pop(1)
sys.argv.append("--quiet")
try:
    main()
finally:
    own = resource.getrusage(resource.RUSAGE_SELF)
    Path(place).write_text(f"{own.ru_utime + own.ru_stime} {own.ru_maxrss}")
"""
"""The command as it is installed; says what this process alone took, without those that it starts for the ranks."""

_INSTALL_S = 900


def code_of(name: str) -> str:
    """What a tool runs; its argument is the folder of a job, of the parser a file."""
    return _PARSED if name == SIMDJSON else _ANALYSES.format(name=name)


def environments(folder: Path, given: Mapping[str, str]) -> tuple[dict[str, str], dict[str, str]]:
    """Python of each tool's environment, and why others have none.

    Args:
        folder: where environments are made, or lie since the last run.
        given: interpreters of environments that exist.
    """
    found, missing = dict(given), {}
    for name, package in INSTALLED.items():
        if name in found:
            continue
        python = folder / name / "bin" / "python"
        why = None if _has(python, package) else _installed(python, package)
        if why is None:
            found[name] = str(python)
        else:
            missing[name] = why
            print(f"without {name}: {why}", flush=True)
    return found, missing


def _has(python: Path, package: str) -> bool:
    distribution = package.replace(">=", "==").partition("==")[0]
    code = f"from importlib.metadata import version; version({distribution!r})"
    return python.exists() and subprocess.run([python, "-c", code], capture_output=True, check=False).returncode == 0


def _installed(python: Path, package: str) -> str | None:
    """Make the environment; returns why it could not be made."""
    venv.create(python.parent.parent, with_pip=True, clear=True)
    command = [python, "-m", "pip", "install", "--quiet", "--retries", "1", "--timeout", "15", package]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=_INSTALL_S, check=False)
    except subprocess.TimeoutExpired:
        return f"pip install {package} took more than {_INSTALL_S} s"
    lines = [line for line in done.stderr.splitlines() if line.startswith("ERROR")]
    return f"pip install {package}: {(lines or ['failed'])[-1][:160]}" if done.returncode else None


def our_command(own: Path, folder: Path, report: Path, *, jobs: int | None) -> list[str]:
    """The whole command of this project: page, CSV and JSON."""
    asked = [] if jobs is None else ["--jobs", str(jobs)]
    # Safe path: the package is the one that the environment names, not what lies in the working folder.
    return [sys.executable, "-P", "-c", OURS, str(own), str(folder), "--output", str(report), *asked]


if __name__ == "__main__":
    main()
