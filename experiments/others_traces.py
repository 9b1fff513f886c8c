"""Published traces: the report's verdict, and its times against an independent reading of their raw events.

    PYTHONPATH=. python experiments/others_traces.py FOLDER [--write]

FOLDER holds a folder for each of `TRACES` (any of them may be missing).
Prints the table, and with --write puts it into that page. Ends with 1 where a figure differs.
"""

import argparse
import json
import re
import subprocess
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests import by_hand

PAGE = Path(__file__).parent.parent / "docs" / "results" / "others_traces.md"
BEGIN, END = "<!-- table -->\n", "<!-- end -->"
PARTS = {
    "compute": "compute_ns", "comm": "exposed_comm_ns", "copy": "exposed_copy_ns", "idle": "idle_ns"
}  # fmt: skip


@dataclass(frozen=True, slots=True)
class Trace:
    """One published capture.

    Attributes:
        folder: below the folder of all.
        of: where it was published.
        what: what it is.
        remark: what else was checked, and how.
    """

    folder: str
    of: str
    what: str
    remark: str = ""


TRACES = (
    Trace(
        "public/b200_tp8",
        "`b200` of AMD-AGI/TraceLens (MIT)",
        "vLLM on eight B200s, the trace of one rank; `multimem_all_reduce` of PyTorch's symmetric memory",
        "Its 73 all-reduces move 385,661,952 bytes, the sum of their operators' shapes",
    ),
    Trace(
        "public/mi300_rccl",
        "`mi300/resnet_act_checkpoint` of TraceLens",
        "ROCm, the trace of one rank of eight; `ncclDevKernel_Generic`",
        "Its six all-reduces with arguments move 70,137,072 bytes",
    ),
    Trace(
        "public/rocprofv3",
        "`rocprof` of TraceLens",
        "rocprofv3's JSON, 43,915 dispatches without a host side",
    ),
    Trace(
        "public/vllm_decode_graphs",
        "`inference/vllm_decode_full` of TraceLens",
        "vLLM decode, a replayed CUDA graph, and the trace of its capture",
        "Operators of the graph's kernels come from the trace of its capture",
    ),
    Trace(
        "public/xplane",
        "`mi300/jax_conv_minimal_08` of TraceLens",
        "JAX, eight GPUs in one `xplane.pb`",
        "Steps of GPU 0 take 17.0, 26.2, 4.2 and 45.6 ms",
    ),
    Trace(
        "world/symm",
        "ours (`tests/captures/symm`)",
        "two ranks with PyTorch's symmetric memory: rank 0's CPU is slow, rank 1 spins in `barrier_kernel`",
        "Rank 1's 56 barriers take 3.26 ms in two steps, rank 0's 0.23",
    ),
    Trace(
        "world/interleaved",
        "ours (`tests/captures/pp_interleaved`)",
        "two ranks with an interleaved pipeline: 4 stages on 2 ranks, 8 microbatches",
    ),
    Trace(
        "world/offload",
        "ours",
        "two ranks under FSDP2 with `CPUOffloadPolicy`",
    ),
)


def main() -> int:
    """Print the table; 1 where a figure of the report is not that of the raw events."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("folder", type=Path)
    arguments.add_argument("--write", action="store_true")
    given = arguments.parse_args()
    found = [row_of(trace, given.folder / trace.folder) for trace in TRACES if (given.folder / trace.folder).is_dir()]
    if not found:
        arguments.error(f"{given.folder} holds none of {', '.join(trace.folder for trace in TRACES)}")
    head = "| trace | what it is | verdict | compared |\n|---|---|---|---|\n"
    table = head + "".join(f"| {' | '.join(cells)} |\n" for cells, _ in found)
    sys.stdout.write(table)
    if given.write:
        before, rest = PAGE.read_text().split(BEGIN)
        PAGE.write_text(before + BEGIN + table + END + rest.split(END, 1)[1])
    return int(any(differences for _, differences in found))


def row_of(trace: Trace, folder: Path) -> tuple[list[str], int]:
    """The cells of a trace's row, and how many figures differ by more than 2 ns."""
    with tempfile.TemporaryDirectory() as output:
        command = ["analyze-traces", str(folder), "--no-cache", "--format", "md", "--format", "json", "-o", output]
        subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        results = json.loads((Path(output) / "summary.json").read_text())
        said = first_lines((Path(output) / "summary.md").read_text())
    differences, figures = compared(folder, results["results"])
    cells = [trace.of, trace.what, said, ". ".join(text for text in (figures, trace.remark) if text)]
    return cells, differences


def first_lines(markdown: str) -> str:
    """The verdict."""
    line = next(line[2:] for line in markdown.splitlines() if line.startswith("- "))
    return line.replace("|", "\\|")


def compared(folder: Path, results: Mapping[str, Any]) -> tuple[int, str]:
    """How many figures differ, and a sentence with those of the first rank."""
    by_rank = operations_of(folder)
    table = {row["rank"]: row for row in results["breakdown"]}
    assert set(table) == set(by_rank), "every rank is compared"
    differences = [difference(table[rank], by_hand.split(own)) for rank, own in by_rank.items()]
    steps = [
        difference(row, by_hand.split(by_rank[rank], low, high))
        for rank, windows in steps_of(folder).items()
        for (low, high), row in zip(windows, complete(results["steps"], rank), strict=False)
    ]
    first = by_rank[min(by_rank)]
    worst = max([*differences, *steps])
    of_what = f"{len(by_rank)} ranks'" if len(by_rank) > 1 else "The"
    also = f" and {len(steps)} complete steps" if steps else ""
    same = (
        "the same to the nanosecond"
        if not worst
        else f"the same to {worst} ns"
        if worst <= 2
        else f"**{worst} ns off**"
    )
    return int(worst > 2), f"{of_what} whole capture{also}: {same}. {figures_of(first, min(by_rank))}"


def figures_of(operations: list[by_hand.Operation], rank: int) -> str:
    """One rank's times, from the raw events."""
    spent, kinds = by_hand.split(operations), Counter(kind for _, _, kind, _ in operations)
    ms = {name: f"{length / 1e6:,.3f}" for name, length in spent.items()}
    return (
        f"Rank {rank}: window {sum(spent.values()) / 1e6:,.3f} ms, compute {ms['compute']}, exposed communication "
        f"{ms['comm']} ({kinds['comm']:,} operations), exposed copies {ms['copy']}, idle {ms['idle']}"
    )


def difference(row: Mapping[str, Any], spent: Mapping[str, int]) -> int:
    """The largest, in ns."""
    return max(abs(row[column] - spent[part]) for part, column in PARTS.items())


def complete(steps: list[Mapping[str, Any]], rank: int) -> list[Mapping[str, Any]]:
    """The rank's steps in order."""
    own = (row for row in steps if row["rank"] == rank and row["step"] is not None)
    return sorted(own, key=lambda row: row["start_ns"])


def operations_of(folder: Path) -> dict[int, list[by_hand.Operation]]:
    """What ran on each rank's GPU."""
    if planes := sorted(folder.glob("*.xplane.pb")):
        return by_hand.xplane(planes[0])
    if results := sorted(folder.glob("*_results.json.gz")):
        return {0: by_hand.rocprofv3(results[0])}
    return {rank: by_hand.kineto(by_hand.kineto_events(path)) for rank, path in kineto_files(folder).items()}


def steps_of(folder: Path) -> dict[int, list[tuple[int, int]]]:
    """Windows of the profiler's steps by rank."""
    return {rank: by_hand.step_windows(by_hand.kineto_events(path)) for rank, path in kineto_files(folder).items()}


def kineto_files(folder: Path) -> dict[int, Path]:
    """PyTorch's traces by rank; what does not name its rank is rank 0."""
    own = [path for path in folder.glob("*.json.gz") if not path.name.endswith("_results.json.gz")]
    return {int(match[1]) if (match := re.search(r"rank(\d+)", path.name)) else 0: path for path in own}


if __name__ == "__main__":
    sys.exit(main())
