"""Small copies of a run's captures that can be shared: `python experiments/samples.py FROM TO --steps 2`."""

from __future__ import annotations

import argparse
import gzip
import json
import re
import shutil
from pathlib import Path
from typing import Any

from traceanalyzer.readers.nsys.traces import scrub

# What no analysis reads and what makes up much of a file.
BULKY = ("Input Strides", "Ev Idx", "Record function id")
STEP = re.compile(r"ProfilerStep#(\d+)")
WORDS_OF_A_MACHINE = re.compile(r'"(?:/(?:home|root|tmp|opt|usr|work|mnt|data)/|host_name|username)')


def main() -> None:
    """Copy one run: its run.json and every rank's capture."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", type=Path)
    parser.add_argument("target", type=Path)
    parser.add_argument("--steps", type=int, help="keep the first so many steps of a PyTorch trace (default: all)")
    parser.add_argument("--lean", action="store_true", help="also leave out arguments that no analysis reads")
    options = parser.parse_args()
    options.target.mkdir(parents=True, exist_ok=True)
    shutil.copy(options.source / "run.json", options.target / "run.json")
    for path in sorted(options.source.glob("rank_*/*.json*")):
        folder = options.target / path.parent.name
        folder.mkdir(exist_ok=True)
        copy_trace(path, folder / "capture.pt.trace.json.gz", options.steps, lean=options.lean)
    for path in sorted(options.source.glob("*.sqlite")):
        shutil.copy(path, options.target / path.name)
        scrub(options.target / path.name)


def copy_trace(source: Path, target: Path, steps: int | None, *, lean: bool) -> None:
    """Write a PyTorch trace anew without paths, and without what was asked to be left out."""
    opened = gzip.open if source.suffix == ".gz" else open
    with opened(source, "rt") as file:
        trace = json.load(file)
    trace["traceName"] = target.name.removesuffix(".gz")
    if steps is not None:
        trace["traceEvents"] = first_steps(trace["traceEvents"], steps)
    if lean:
        for event in trace["traceEvents"]:
            for name in BULKY:
                event.get("args", {}).pop(name, None)
    text = json.dumps(trace, separators=(",", ":"))
    if found := WORDS_OF_A_MACHINE.search(text):
        message = f"{source} names its machine: {text[found.start() : found.start() + 80]}"
        raise ValueError(message)
    # No name and no time in the header: the same input gives the same file.
    with target.open("wb") as raw, gzip.GzipFile("", "wb", 9, raw, mtime=0) as file:
        file.write(text.encode())


def first_steps(events: list[dict[str, Any]], steps: int) -> list[dict[str, Any]]:
    """What the host did before it began the step after the kept ones, and what that launched."""
    starts = sorted(
        (int(found.group(1)), event["ts"])
        for event in events
        if event.get("cat") == "user_annotation" and (found := STEP.fullmatch(event["name"]))
    )
    if len(starts) <= steps:
        return events
    cut = starts[steps][1]
    on_gpu = {"kernel", "gpu_memcpy", "gpu_memset", "cuda_sync", "gpu_user_annotation"}
    late = {
        event["args"]["correlation"]
        for event in events
        if event["ph"] == "X" and event["ts"] >= cut and event.get("cat") in {"cuda_runtime", "cuda_driver"}
    }
    late_ids = {
        event["args"]["External id"]
        for event in events
        if event["ph"] == "X" and event["ts"] >= cut and event.get("cat") == "user_annotation"
    }

    def is_kept(event: dict[str, Any]) -> bool:
        if event["ph"] == "M":
            return True
        if event.get("cat") == "gpu_user_annotation":
            return event["args"]["External id"] not in late_ids
        if event.get("cat") == "ac2g":
            return event["id"] not in late
        if event.get("cat") in on_gpu:
            return event["args"]["correlation"] not in late
        return bool(event["ts"] < cut)

    return [event for event in events if is_kept(event)]


if __name__ == "__main__":
    main()
