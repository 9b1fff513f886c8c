"""What offloading and broadcasts copy, how fast, and what hides it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from measured.breakdown import host_idle_pct
from measured.cells import MB, MS, counted, rounded

if TYPE_CHECKING:
    from measured.runs import Run


def offload(run: Run) -> dict[str, Any]:
    """What each GPU uploads in a step, how fast, and how much of it compute hides; means over ranks."""
    copies, pairs = run.table("copies"), run.table("stream_pairs")
    if copies.empty or not run.facts["transfer"]:
        return {}
    steps, blocks = run.table("headline")["steps"].iloc[0], run.table("block_bounds")
    up, down = (copies[copies["direction"] == direction] for direction in ("HtoD", "DtoH"))
    hidden = pairs[pairs["first"] == "compute"].groupby("second")["both_pct"].mean()
    size = run.facts["transfer"][0]["uploaded_bytes_per_step"]
    gathered = run.facts["transfer"][0]["gathered_bytes_per_step"]
    return {
        "run": run.facts["strategy"] + (" --slice-params" if gathered else ""),
        "profiler": run.facts["profile"]["profiler"],
        "NCCL": (run.facts.get("transports") or [""])[0].partition("/")[0],
        "GPUs": run.facts["world_size"],
        "step ms": rounded(run.step_ms, 1),
        "uploaded MB a GPU and step": rounded(up["size_bytes"].mean() / steps / MB, 0),
        "run.json: uploaded MB": rounded(size / MB, 0),
        "upload GB/s a GPU": rounded(up["size_bytes"].sum() / up["busy_ns"].sum(), 1),
        "offload GB/s a GPU": rounded(down["size_bytes"].sum() / down["busy_ns"].sum(), 1),
        "memory": "/".join(sorted({*up["source_memory"].dropna(), *down["target_memory"].dropna()})),
        "upload behind compute %": rounded(hidden.get("upload"), 1),
        "offload behind compute %": rounded(hidden.get("download"), 1),
        "gathered MB a step": gathered and rounded(gathered / MB, 0),
        "gathers behind compute %": rounded(hidden.get("communication"), 1) if gathered else None,
        "block ms": rounded(blocks["pitch_ns"].mean() / MS, 2),
        "its compute / upload / offload ms": " / ".join(
            f"{blocks[part].mean() / MS:.2f}" for part in ("compute_ns", "upload_ns", "download_ns")
        ),
        "idle by CPU %": host_idle_pct(run),
        "exposed copies %": rounded(run.table("headline")["exposed_copy_pct"].mean(), 1),
        "exposed comm %": rounded(run.table("headline")["exposed_comm_pct"].mean(), 1),
    }


def broadcast(run: Run) -> list[dict[str, Any]]:
    """Rate of each link while it copies, over complete steps (one rank drives all GPUs)."""
    copies = run.table("copies")
    if copies.empty or not run.name.startswith("broadcast"):
        return []
    payload = run.facts["transfer"][0]["payload_bytes"]
    devices = run.facts["transfer"][0]["devices"]
    whole = {"run": run.facts["strategy"], "GPUs": devices, "ms": rounded(run.step_ms, 2)}
    whole["delivered GB/s"] = rounded(payload * devices / (run.step_ms or 1) / MS, 1)
    links = copies[copies["direction"].isin(["HtoD", "PtoP"])]
    return [
        whole
        | {
            "link": f"GPU 0 → GPU {int(row.peer_device)}" if row.direction == "PtoP" else f"host → GPU {row.rank}",
            "memory": row.source_memory,
            "copies a step": steps and counted(row.copies / steps),
            "GB/s": rounded(row.rate_gbps, 1),
            "beside other copies %": rounded(100 * row.with_other_copies_ns / row.busy_ns, 0),
        }
        for row in links.itertuples()
        for steps in [len(run.complete_steps.query(f"rank == {row.rank}")) or None]
    ]
