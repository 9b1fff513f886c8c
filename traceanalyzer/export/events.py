"""Event tables as Parquet, one file a rank: `events/<table>/rank_<r>.parquet`."""

from pathlib import Path

from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import TABLES


def write_rank(trace: RankTrace, folder: Path) -> None:
    """Write every event table of a rank, each with a `rank` column; `gpu_ops` also has its `step`."""
    for name in TABLES:
        frame = trace.table(name).copy()
        if name == "gpu_ops" and len(trace.steps):
            numbers = trace.steps["step"].astype("Int64")
            frame["step"] = numbers.reindex(trace.op_step).array  # row -1 is none
        frame.insert(0, "rank", trace.rank)
        path = folder / name / f"rank_{trace.rank}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(path, index=False)
