"""What-if's predictions beside what happened: `python experiments/what_if_pairs.py profile/pairs docs/results/x.csv`.

For each pair that `record_pairs.py` left, the job recorded with the fault is replayed without it, and its predicted
step stands beside that of the job recorded without the fault, both under the profiler. The un-profiled step times of
both stand there too: a profiler slows hosts, so that gains of hosts are larger under it.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from replayed import replay_of, told

from traceanalyzer.analyses.replay.replay import gain_of
from traceanalyzer.analyses.replay.written import read_change

if TYPE_CHECKING:
    from collections.abc import Sequence

CHANGES: dict[str, tuple[str, ...]] = {
    "slow_gpu": ("rank 1=peers",),
    "slow_gpu_partly": ("rank 1=peers",),
    "slow_host": ("rank 0=peers",),
    "slow_hosts_both": ("host 0=peers",),
    "slow_host_hidden": ("host 1=peers",),
    "loader": ("data ready",),
    "loader_one_rank": ("data 1=ready",),
    "garbage_collection": ("host 1=peers",),
    "synchronised": ("sync none",),
    "synchronised_host_bound": ("sync none",),
    "buckets": ("comm hidden",),
    "no_exchange": ("comm free", "waits none"),
    "no_exchange_overlapped": ("comm free", "waits none", "compute alone"),
    "compressed": ("comm 2x",),
    "blocking_copy": ("copy free",),
    "two_stragglers": ("compute 1=peers",),
    "fewer_products": ("kernel nvjet_sm90_tst_320x128_64x3_1x2_h_bz_coopB_NNT=2x",),
    "even_stages": ("rank 0,1=even",),
}
"""What the second job did differently, as a change to the first; more microbatches are another schedule: no change."""


def main() -> None:
    """Predict every pair that was recorded, print and write the table."""
    folder, target = map(Path, sys.argv[1:3])
    rows = [_row(folder / pair, CHANGES[pair]) for pair in CHANGES if (folder / pair).is_dir()]
    told(rows, target)


def _row(pair: Path, texts: Sequence[str]) -> dict[str, Any]:
    before, after = (replay_of(pair / side) for side in ("before", "after"))
    gain = gain_of(before, *map(read_change, texts))
    happened = gain_of(after)
    assert gain is not None
    assert happened is not None
    unprofiled = json.loads((pair / "steps.json").read_text(encoding="utf-8"))
    without = gain.unprofiled_ns[1] if gain.unprofiled_ns else gain.after_ns
    step_ms = {side: sorted(times)[len(times) // 2] / 1e6 for side, times in unprofiled.items()}
    return {
        "pair": pair.name,
        "change": ", ".join(texts),
        "before_ms": round(gain.before_ns / 1e6, 2),
        "predicted_ms": round(gain.after_ns / 1e6, 2),
        "error_ms": round(gain.error_ns / 1e6, 2),
        "measured_ms": round(happened.before_ns / 1e6, 2),
        "miss_pct": round(100 * (gain.after_ns - happened.before_ns) / happened.before_ns, 1),
        "unprofiled_before_ms": round(step_ms["before"], 2),
        "unprofiled_after_ms": round(step_ms["after"], 2),
        "unprofiled_predicted_ms": round(without / 1e6, 2),
        "unprofiled_miss_pct": round(100 * (without / 1e6 / step_ms["after"] - 1), 1),
    }


if __name__ == "__main__":
    main()
