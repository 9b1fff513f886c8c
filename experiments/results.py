"""Tables of the studies from their runs and reports: `python experiments/results.py profile reports docs/results`.

`profile/<set>/<run>/run.json` has what was measured without a profiler, `reports/<set>/<run>/tables/` what the
analyser says of the capture. Each table becomes `<name>.csv`, and replaces what README.md has between
`<!-- table: <name> -->` and `<!-- end -->`.
"""

from __future__ import annotations

import json
import re
import sys
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

GIB, MS, MB = 2**30, 1e6, 1e6
A_ORDER = (
    *("single", "simple_ddp", "simple_ddp_ga", "simple_ddp_hook", "simple_ddp_async", "bucket_ddp_async"),
    *("pytorch_ddp", "zero1", "zero2", "zero3", "pytorch_zero1", "pytorch_zero2", "pytorch_zero3"),
    *("pp_naive", "pp_gpipe", "pp_1f1b", "tp", "fsdp_hybrid"),
)


@dataclass(frozen=True)
class Run:
    """One run: its run.json and its report."""

    folder: Path
    report: Path

    @property
    def name(self) -> str:
        """Its folder's name."""
        return self.folder.name

    @cached_property
    def facts(self) -> dict[str, Any]:
        """What the runner recorded."""
        facts: dict[str, Any] = json.loads((self.folder / "run.json").read_text())
        return facts

    @property
    def label(self) -> str:
        """What it shares with runs that differ in their seed only."""
        return re.sub(r"_seed\d+$", "", self.name)

    @property
    def is_analysed(self) -> bool:
        """Whether there is a report."""
        return (self.report / "tables" / "headline.csv").exists()

    def table(self, name: str) -> pd.DataFrame:
        """One of the report's tables; empty without a report."""
        path = self.report / "tables" / f"{name}.csv"
        return pd.read_csv(path) if path.exists() and path.stat().st_size > 1 else pd.DataFrame()

    @property
    def complete_steps(self) -> pd.DataFrame:
        """Rank and number of every complete step."""
        steps = self.table("steps")
        return steps.loc[_is_true(steps["is_complete"]), ["rank", "step"]]

    @property
    def step_ms(self) -> float | None:
        """Mean un-profiled step time."""
        time = (self.facts["step_time_ns"] or {}).get("unprofiled")
        return time and time["mean"] / MS

    def peak_gib(self, which: str = "allocated") -> float | None:
        """Highest peak of any rank in the un-profiled steps."""
        held = self.facts["memory"]
        return held and max(rank[f"peak_{which}_bytes"] for rank in held) / GIB


def main() -> None:
    """Write every table that the runs allow."""
    captures, reports, target = map(Path, sys.argv[1:4])
    readme = target / "README.md"
    text = readme.read_text() if readme.exists() else ""
    for name, make in TABLES.items():
        sets = {folder.name: list(_runs(folder, reports)) for folder in sorted(captures.iterdir()) if folder.is_dir()}
        rows = [row for row in make(sets) if row]
        if rows:
            table = pd.DataFrame(rows)
            table.to_csv(target / f"{name}.csv", index=False)
            text = re.sub(
                rf"(<!-- table: {name} -->\n).*?(<!-- end -->)",
                lambda found, table=table: found[1] + _markdown(table) + found[2],  # type: ignore[misc]
                text,
                flags=re.DOTALL,
            )
    readme.write_text(text)


def _runs(folder: Path, reports: Path) -> Iterator[Run]:
    found = [path.parent for path in folder.glob("*/run.json")]
    place = {name: number for number, name in enumerate(A_ORDER)}
    for run in sorted(found, key=lambda path: (place.get(path.name, len(place)), path.name)):
        yield Run(run, reports / folder.name / run.name)


def breakdown(run: Run) -> dict[str, Any]:
    """Throughput without the profiler, and where the time of complete steps goes with it: means over ranks."""
    facts, head = run.facts, run.table("headline")
    tokens = facts["tokens_per_s"]
    row = {
        "run": run.name,
        "GPUs": facts["world_size"],
        "step ms": _round(run.step_ms, 1),
        "± std": _round(run.step_ms and facts["step_time_ns"]["unprofiled"]["std"] / MS, 1),
        "tokens/s": tokens and f"{tokens:,.0f}",
        "MFU %": _round(_mfu_pct(run), 1),
    }
    if not run.is_analysed:
        return row
    mean = head.mean(numeric_only=True)
    waits = run.table("exposed_comm")
    waits = waits[_is_true(waits["is_complete"])] if len(waits) else waits
    idle = run.table("idle")
    idle = idle[idle["step"].isin(run.complete_steps["step"])]
    sums = waits.groupby("rank")[["window_ns", "exposed_transfer_ns", "exposed_wait_ns"]].sum() if len(waits) else None
    return row | {
        "profiled step ms": _round(mean["step_mean_ns"] / MS, 1),
        "compute %": _round(mean["compute_pct"], 1),
        "transfer %": _share(sums, "exposed_transfer_ns"),
        "wait %": _share(sums, "exposed_wait_ns"),
        "exposed comm %": _round(mean["exposed_comm_pct"], 1),
        "copies %": _round(mean["exposed_copy_pct"], 1),
        "idle %": _round(mean["idle_pct"], 1),
        "of it host %": _round(100 * idle["host_ns"].sum() / idle["window_ns"].sum(), 1),
        "overlap %": _round(mean["overlap_pct"], 1),
        "peak GiB": _round(run.peak_gib(), 1),
    }


def _mfu_pct(run: Run) -> float | None:
    """Model FLOPs of run.json over un-profiled step time, GPUs, and the dense bf16 peak of the GPU."""
    peak = {"NVIDIA H100 80GB HBM3": 989.4e12, "NVIDIA H200": 989.4e12}.get((run.facts["gpu"] or {}).get("name"))
    flops = run.facts["model_flops_per_step"]
    if not (peak and flops and run.step_ms) or run.facts["dtype"] != "bf16":
        return None
    return float(100 * flops / (run.step_ms / 1e3) / run.facts["world_size"] / peak)


def _share(sums: pd.DataFrame | None, column: str) -> float | None:
    return None if sums is None else _round((100 * sums[column] / sums["window_ns"]).mean(), 1)


def calls_per_step(run: Run) -> dict[str, Any]:
    """Communication kernels and bytes of a complete step, from rank 0's capture."""
    calls = run.table("calls")
    if calls.empty:
        return {}
    complete = run.complete_steps.query("rank == 0")["step"]
    own = calls[(calls["rank"] == 0) & calls["step"].isin(complete)]
    counts = own.groupby("collective").size() / len(complete)
    blocks = run.facts["model"]["layers"]
    return {
        "run": run.name,
        "blocks": blocks,
        **{name: _count(counts.get(name)) for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast")},
        "send / recv": _count(counts.reindex(["send", "recv", "send_recv"]).sum()),
        "MB": _round(own["size_bytes"].sum() / len(complete) / MB, 0),
        "expected": _expected(run.name, blocks),
    }


def _expected(name: str, blocks: int) -> str | None:
    return {
        "zero2": f"{blocks + 1} all-gathers",
        "zero3": f"{2 * blocks + 1} all-gathers",
        "pytorch_zero2": f"{blocks + 1} all-gathers",
        "pytorch_zero3": f"{2 * blocks + 1} all-gathers",
        "tp": f"{4 * blocks} all-reduces and those of embedding and head",
    }.get(name)


def collectives(run: Run) -> list[dict[str, Any]]:
    """Each kind of collective of rank 0: size, transfer and bandwidth, over the whole capture."""
    table = run.table("collectives")
    if table.empty:
        return []
    own = table[(table["rank"] == 0) & table["busbw_gbps"].notna()]
    return [
        {
            "run": run.name,
            "collective": row.collective,
            "size": row.size_class,
            "calls": row.calls,
            "MB": _round(row.size_bytes / MB, 0),
            "transfer ms": _round(row.transfer_ns / MS, 2),
            "algbw GB/s": _round(row.algbw_gbps, 1),
            "busbw GB/s": _round(row.busbw_gbps, 1),
            "of peak %": _round(row.peak_pct, 0),
        }
        for row in own.itertuples()
    ]


def against_one_gpu(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Step time, throughput and memory beside those of one GPU with the same batch a GPU."""
    named = {run.name: run for run in runs}
    base = named.get("single")
    if base is None or base.step_ms is None:
        return
    for run in (base, *(named[name] for name in ("pytorch_ddp", "pytorch_zero2", "pytorch_zero3") if name in named)):
        if run.step_ms is None:
            continue
        speed_up = run.facts["tokens_per_s"] / base.facts["tokens_per_s"]
        yield {
            "run": run.name,
            "GPUs": run.facts["world_size"],
            "step ms": _round(run.step_ms, 1),
            "step against one GPU %": _round(100 * (run.step_ms / base.step_ms - 1), 1),
            "tokens/s": f"{run.facts['tokens_per_s']:,.0f}",
            "speed-up": _round(speed_up, 2),
            "scaling efficiency %": _round(100 * speed_up / run.facts["world_size"], 1),
            "expected state GiB": _round(sum(v for k, v in run.facts["expected"][0].items() if k != "rank") / GIB, 1),
            "peak allocated GiB": _round(run.peak_gib(), 1),
            "peak reserved GiB": _round(run.peak_gib("reserved"), 1),
        }


def batch_sweep(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Throughput and memory by batch, up to the first that does not fit."""
    for name in ("pytorch_ddp", "pytorch_zero3"):
        own = [run for run in runs if re.fullmatch(rf"{name}(_batch\d+)?", run.name)]
        for run in sorted(own, key=lambda run: int(run.facts["batch"]["micro_batch"])):
            yield {
                "strategy": name,
                "batch a GPU": run.facts["batch"]["micro_batch"],
                "status": run.facts["status"],
                "step ms": _round(run.step_ms, 1),
                "tokens/s": run.facts["tokens_per_s"] and f"{run.facts['tokens_per_s']:,.0f}",
                "MFU %": _round(_mfu_pct(run), 1),
                "peak allocated GiB": _round(run.peak_gib(), 1),
                "peak reserved GiB": _round(run.peak_gib("reserved"), 1),
            }


def offload(run: Run) -> dict[str, Any]:
    """What each GPU uploads in a step, how fast, and how much of it compute hides; means over ranks."""
    copies, pairs = run.table("copies"), run.table("stream_pairs")
    if copies.empty or not run.facts["transfer"]:
        return {}
    steps, blocks = run.table("headline")["steps"].iloc[0], run.table("block_bounds")
    up, down = (copies[copies["direction"] == direction] for direction in ("HtoD", "DtoH"))
    hidden = pairs[(pairs["of"] == "class") & (pairs["first"] == "compute")].groupby("second")["overlap_pct"].mean()
    size = run.facts["transfer"][0]["uploaded_bytes_per_step"]
    gathered = run.facts["transfer"][0]["gathered_bytes_per_step"]
    return {
        "run": run.name,
        "GPUs": run.facts["world_size"],
        "step ms": _round(run.step_ms, 1),
        "uploaded MB a GPU and step": _round(up["size_bytes"].mean() / steps / MB, 0),
        "run.json says": _round(size / MB, 0),
        "upload GB/s a GPU": _round(up["size_bytes"].sum() / up["busy_ns"].sum(), 1),
        "offload GB/s a GPU": _round(down["size_bytes"].sum() / down["busy_ns"].sum(), 1),
        "memory": "/".join(sorted({*up["source_memory"].dropna(), *down["target_memory"].dropna()})),
        "upload behind compute %": _round(hidden.get("upload"), 1),
        "offload behind compute %": _round(hidden.get("download"), 1),
        "gathered MB a step": gathered and _round(gathered / MB, 0),
        "gathers behind compute %": _round(hidden.get("communication"), 1) if gathered else None,
        "block ms": _round(blocks["pitch_ns"].mean() / MS, 2),
        "its compute / upload / offload ms": " / ".join(
            f"{blocks[part].mean() / MS:.2f}" for part in ("compute_ns", "upload_ns", "download_ns")
        ),
        "bound": ", ".join(sorted(blocks["bound"].unique())),
        "exposed copies %": _round(run.table("headline")["exposed_copy_pct"].mean(), 1),
        "exposed comm %": _round(run.table("headline")["exposed_comm_pct"].mean(), 1),
    }


def broadcast(run: Run) -> list[dict[str, Any]]:
    """Rate of each link while it copies, over complete steps (one rank drives all GPUs)."""
    copies = run.table("copies")
    if copies.empty or not run.name.startswith("broadcast"):
        return []
    payload = run.facts["transfer"][0]["payload_bytes"]
    devices = run.facts["transfer"][0]["devices"]
    whole = {"run": run.name, "ms": _round(run.step_ms, 2)}
    whole["delivered GB/s"] = _round(payload * devices / (run.step_ms or 1) / MS, 1)
    links = copies[copies["direction"].isin(["HtoD", "PtoP"])]
    return [
        whole
        | {
            "link": f"GPU 0 → GPU {int(row.peer_device)}" if row.direction == "PtoP" else f"host → GPU {row.rank}",
            "memory": row.source_memory,
            "copies a step": steps and _count(row.copies / steps),
            "GB/s": _round(row.rate_gbps, 1),
            "beside other copies %": _round(100 * row.with_other_copies_ns / row.busy_ns, 0),
        }
        for row in links.itertuples()
        for steps in [len(run.complete_steps.query(f"rank == {row.rank}")) or None]
    ]


def pipeline(run: Run) -> dict[str, Any]:
    """Throughput of a pipeline, and the balance and bubble of its capture if there is one."""
    parallel = run.facts["parallel"]
    if parallel["pp"] in {None, 1}:
        return {}
    row = {
        "run": run.name,
        "stages": parallel["pp"],
        "split": ",".join(map(str, parallel["split"] or [])),
        "microbatches": parallel["microbatches"],
        "step ms": _round(run.step_ms, 1),
        "samples/s": run.step_ms and _round(run.facts["batch"]["global_batch"] / run.step_ms * 1e3, 0),
        "peak GiB by stage": " ".join(f"{rank['peak_allocated_bytes'] / GIB:.1f}" for rank in run.facts["memory"]),
    }
    stages, whole = run.table("pipeline"), run.table("pipelines")
    if stages.empty:
        return row
    steps = stages["steps"].iloc[0]
    return row | {
        "compute ms by stage": " ".join(f"{ns / steps / MS:.1f}" for ns in stages["compute_ns"]),
        "compute CV": _round(whole["compute_cv"].iloc[0], 3),
        "bubble %": _round(whole["bubble_pct"].iloc[0], 1),
        "expected %": _round(whole["expected_bubble_pct"].iloc[0], 1),
    }


def over_seeds(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """Throughput of runs that differ in their seed: mean, sample standard deviation, each value."""
    for label in dict.fromkeys(run.label for run in runs):
        own = [run for run in runs if run.label == label and run.step_ms and run.facts["batch"]]
        values = pd.Series([run.facts["batch"]["global_batch"] / run.step_ms * 1e3 for run in own])
        if len(values) > 1:
            yield {
                "run": label,
                "GPUs": own[0].facts["world_size"],
                "seeds": len(values),
                "samples/s": f"{values.mean():,.0f} ± {values.std():,.0f}",
                "each": " ".join(f"{value:,.0f}" for value in values),
                "peak GiB": _round(own[0].peak_gib(), 1),
                "reserved GiB": _round(own[0].peak_gib("reserved"), 1),
            }


def by_category(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """GPU time of a recorded step by category of kernels, a column for each run; means over ranks."""
    return _side_by_side(runs, "categories", ["category"], "gpu_ns", least_ms=0)


def by_operator(runs: list[Run]) -> Iterator[dict[str, Any]]:
    """GPU time of a recorded step that each operator launched itself, where runs differ by half a millisecond."""
    return _side_by_side(runs, "operators", ["operator", "autograd"], "gpu_own_ns", least_ms=0.5)


def _side_by_side(
    runs: list[Run], table: str, keys: list[str], column: str, least_ms: float
) -> Iterator[dict[str, Any]]:
    """A capture holds whole steps, as many as were recorded; rows whose largest difference is smaller are left out."""
    found = {}
    for run in runs:
        if run.is_analysed:
            own = run.table(table).fillna(dict.fromkeys(keys, ""))
            summed = own.groupby(keys)[column].sum() / own["rank"].nunique()
            found[run.name] = summed / run.facts["profile"]["active"] / MS
    if not found:
        return
    frame = pd.DataFrame(found).fillna(0)
    spread = frame.max(axis=1) - frame.min(axis=1)
    frame = frame[spread >= least_ms].sort_values(frame.columns[0], ascending=False)
    for row in frame.reset_index().to_dict("records"):
        yield {name: value if isinstance(value, str) else _round(value, 2) for name, value in row.items()}


Sets = dict[str, list[Run]]

TABLES: dict[str, Callable[[Sets], Any]] = {
    "a_breakdown": lambda sets: (breakdown(run) for run in sets["A"] if run.name == run.label),
    "a_seeds": lambda sets: over_seeds(sets["A"]),
    "a_calls": lambda sets: map(calls_per_step, sets["A"]),
    "a_collectives": lambda sets: (row for run in sets["A"] for row in collectives(run)),
    "a_pipelines": lambda sets: (pipeline(run) for run in sets["A"] if run.name == run.label),
    "b_breakdown": lambda sets: (breakdown(run) for run in sets["B"] if run.is_analysed),
    "b_categories": lambda sets: by_category(sets["B"]),
    "b_operators": lambda sets: by_operator(sets["B"]),
    "b_scaling": lambda sets: against_one_gpu(sets["B"]),
    "b_sweep": lambda sets: batch_sweep(sets["B"]),
    "b_collectives": lambda sets: (row for run in sets["B"] for row in collectives(run)),
    "c_offload": lambda sets: map(offload, sets["C"]),
    "d_broadcast": lambda sets: (row for run in sets["D"] for row in broadcast(run)),
    "d_pipeline": lambda sets: map(pipeline, sets["D"]),
    "d_seeds": lambda sets: over_seeds(sets["D"]),
}


def _is_true(column: pd.Series) -> pd.Series:
    return column.astype("boolean").fillna(value=False)


def _round(value: float | None, digits: int) -> float | None:
    return None if value is None or pd.isna(value) else round(float(value), digits)


def _count(value: float | None) -> float | int | None:
    if value is None or pd.isna(value) or value == 0:
        return None
    return int(value) if float(value).is_integer() else round(float(value), 2)


def _markdown(table: pd.DataFrame) -> str:
    def cell(value: object) -> str:
        if value is None or (isinstance(value, float) and pd.isna(value)):
            return ""
        return f"{value:g}" if isinstance(value, float) and value.is_integer() else str(value)

    lines = [list(table.columns), ["---"] * len(table.columns), *table.astype(object).to_numpy().tolist()]
    return "".join("| " + " | ".join(map(cell, line)) + " |\n" for line in lines)


if __name__ == "__main__":
    main()
