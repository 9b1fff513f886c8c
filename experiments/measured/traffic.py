"""What a run communicates: calls and bytes of a step, bandwidth of each collective."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from measured.cells import MB, MS, counted, rounded

if TYPE_CHECKING:
    from measured.runs import Run


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
        **{name: counted(counts.get(name)) for name in ("all_reduce", "all_gather", "reduce_scatter", "broadcast")},
        "send / recv": counted(counts.reindex(["send", "recv", "send_recv"]).sum()),
        "MB": rounded(own["size_bytes"].sum() / len(complete) / MB, 0),
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
            "MB": rounded(row.size_bytes / MB, 0),
            "transfer ms": rounded(row.transfer_ns / MS, 2),
            "algbw GB/s": rounded(row.algbw_gbps, 1),
            "busbw GB/s": rounded(row.busbw_gbps, 1),
            "of peak %": rounded(row.peak_pct, 0),
        }
        for row in own.itertuples()
    ]
