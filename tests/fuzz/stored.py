"""A summary.json and a baseline of a small job, made once."""

import json
import tempfile
from functools import cache
from pathlib import Path
from unittest.mock import patch

from tests.fuzz import seeds
from traceanalyzer.diff.sources import SourceOptions, read_side, save_baseline
from traceanalyzer.discovery import discover
from traceanalyzer.job import run_info
from traceanalyzer.loading import LoadOptions
from traceanalyzer.report.contents import build
from traceanalyzer.report.writers import write
from traceanalyzer.scale import summarise


def _folder(place: str) -> Path:
    folder = Path(place, "job")
    for rank, content in enumerate((seeds.kineto()[0], seeds.kineto()[0])):
        document = json.loads(json.dumps(content))
        document["distributedInfo"]["rank"] = rank
        (folder / f"rank{rank}.json").parent.mkdir(exist_ok=True)
        (folder / f"rank{rank}.json").write_text(json.dumps(document))
    (folder / "run.json").write_text(json.dumps(seeds.RUN_INFO))
    return folder


@cache
def summary_text() -> str:
    with tempfile.TemporaryDirectory() as place:
        found = discover(_folder(place))
        info, _ = run_info.read_or_note(found.runs[-1].info)
        summary = summarise(found, found.runs[-1], LoadOptions(), jobs=1, **run_info.thresholds(info))
        made = build(summary, "stored", run_info=info)
        return next(path for path in write(made, Path(place), ["json"])).read_text()


@cache
def baseline_text() -> str:
    with tempfile.TemporaryDirectory() as place:
        side = read_side(str(_folder(place)), SourceOptions(jobs=1))
        with patch("traceanalyzer.diff.sources.BASELINES", Path(place, "baselines")):
            return save_baseline("stored", side).read_text()
