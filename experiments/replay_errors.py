"""How far the replay explains real captures: a row a capture, as Markdown.

python experiments/replay_errors.py traces/torch/* traces/nsys/*.sqlite
"""

import argparse
from pathlib import Path

import traceanalyzer as ta
from traceanalyzer.errors import TraceAnalyzerError


def main() -> None:
    """Print the table."""
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("captures", nargs="+", type=Path)
    heads = ("capture", "step ms", "error ms", "error %", "waits between streams", "instances joined", "path: CPU",
             "compute", "transfers")  # fmt: skip
    print(f"| {' | '.join(heads)} |\n|{'---|' * len(heads)}")
    for capture in arguments.parse_args().captures:
        try:
            print(row(capture))
        except TraceAnalyzerError as error:
            print(f"| {capture.name} | {error} |")


def row(capture: Path) -> str:
    """Of one capture."""
    results = ta.analyse(ta.load(capture), "replay", "path_stretches")
    engine = results["replay"].engine
    path = results["path_stretches"].to_frame()
    length = path["end_ns"] - path["start_ns"]
    shares = 100 * length.groupby(path["category"]).sum().reindex(["host", "compute", "comm"]).fillna(0) / length.sum()
    waits = [nodes.piece.waits["is_recorded"].astype(bool) for nodes in engine.job.nodes.values()]
    recorded, number = sum(int(own.sum()) for own in waits), sum(map(len, waits))
    counts = {"recorded": recorded, "inferred": number - recorded}
    known = ", ".join(f"{count} {how}" for how, count in counts.items() if count) or "none"
    return (
        f"| {capture.name} | {engine.before_ns / 1e6:.2f} | {engine.error_ns / 1e6:.3f} "
        f"| {100 * engine.error_ns / engine.before_ns:.2f} | {known} "
        f"| {engine.job.joins['instance'].nunique()} | {shares['host']:.0f}% | {shares['compute']:.0f}% "
        f"| {shares['comm']:.0f}% |"
    )


if __name__ == "__main__":
    main()
