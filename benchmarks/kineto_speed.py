"""How fast and in how much memory a large Kineto trace is read and reported, beside HolisticTraceAnalysis.

    python benchmarks/kineto_speed.py tests/captures/ddp/rank0.json.gz --events 1200000

Makes a trace by repeating a sample's events with shifted times, correlation ids and step numbers, then measures,
each in a process of its own: reading it in one process and in two, `json.load`, the whole command, and
HolisticTraceAnalysis or traceinsight where one is installed.
"""

import argparse
import gzip
import importlib.util
import re
import subprocess
import sys
import tempfile
import time
from pathlib import Path

READ = """
import sys, time
from pathlib import Path
from traceanalyzer.kinds import KindRules
from traceanalyzer.execution import CORES_A_FILE
from traceanalyzer.readers import RankHint, kineto
CORES_A_FILE.set({processes})
started = time.perf_counter()
ranks = list(kineto.read(Path(sys.argv[1]), RankHint(0, "path"), KindRules()))
print(time.perf_counter() - started, sum(len(rank.gpu_ops) for rank in ranks))
"""

PLAIN = """
import json, sys, time
started = time.perf_counter()
with open(sys.argv[1]) as file:
    events = len(json.load(file)["traceEvents"])
print(time.perf_counter() - started, events)
"""

REPORT = """
import sys
from traceanalyzer.cli import main
main(["--trace-file", sys.argv[1], "--output", sys.argv[2], "--quiet", "--no-cache"])
"""

PEER = """
import shutil, sys, tempfile, time
from {module}.trace_analysis import TraceAnalysis
folder = tempfile.mkdtemp()
shutil.copy(sys.argv[1], folder + "/rank0.json")
started = time.perf_counter()
TraceAnalysis(trace_dir=folder).get_temporal_breakdown(visualize=False)
print(time.perf_counter() - started, 0)
"""


def main() -> None:
    options = arguments()
    with tempfile.TemporaryDirectory() as folder:
        trace = Path(folder, "rank0.json")
        events = repeat(options.sample, trace, options.events)
        size = trace.stat().st_size
        print(f"trace: {size / 1e6:,.0f} MB, {events:,} events")
        for processes in (1, 2):
            seconds, total, peak = measured(READ.format(processes=processes), trace)
            print(
                f"read, {processes} processes: {seconds:.2f} s, {size / 1e6 / seconds:,.0f} MB/s, "
                f"peak of one {peak / 1e6:,.0f} MB ({peak / size:.2f} x file)"
            )
        seconds, _, peak = measured(PLAIN, trace)
        print(f"json.load: {seconds:.2f} s, peak {peak / 1e6:,.0f} MB")
        _, total, peak = measured(REPORT, trace, Path(folder, "report"))
        print(f"whole command: {total:.2f} s, peak {peak / 1e6:,.0f} MB ({peak / size:.2f} x file)")
        for module in ("hta", "traceinsight"):
            if importlib.util.find_spec(module):
                seconds, total, peak = measured(PEER.format(module=module), trace)
                print(f"{module}: {seconds:.1f} s in its own call, {total:.1f} s in all, peak {peak / 1e6:,.0f} MB")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("sample", type=Path)
    parser.add_argument("--events", type=int, default=1_200_000)
    return parser.parse_args()


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


def measured(code: str, *paths: Path) -> tuple[float, float, int]:
    """Seconds that the code printed (else all), seconds in all, and peak resident bytes of the process."""
    started = time.perf_counter()
    done = subprocess.run([sys.executable, "-c", WRAPPED.format(code=code), *map(str, paths)],
                          check=True, capture_output=True, text=True)  # fmt: skip
    total = time.perf_counter() - started
    *printed, peak = done.stdout.strip().splitlines()
    return float(printed[-1].split()[0]) if printed else total, total, int(peak)


WRAPPED = """
import resource
try:
    exec({code!r})
except SystemExit as stop:
    assert not stop.code, stop.code
finally:
    print(max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) * 1024)
"""

if __name__ == "__main__":
    main()
