"""What a run left: its run.json and the tables of its report."""

from __future__ import annotations

import gzip
import json
import re
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import pandas as pd

from measured.cells import GIB, MS

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path

A_ORDER = (
    *("single", "simple_ddp", "simple_ddp_ga", "simple_ddp_hook", "simple_ddp_async", "bucket_ddp_async"),
    *("pytorch_ddp", "pytorch_ddp_bf16", "zero1", "zero2", "zero3", "pytorch_zero1", "pytorch_zero2", "pytorch_zero3"),
    *("deepspeed_zero1", "deepspeed_zero2", "deepspeed_zero3"),
    *("pp_naive", "pp_gpipe", "pp_1f1b", "tp", "fsdp_hybrid"),
)


@dataclass(frozen=True)
class Run:
    """One run: its run.json and its report."""

    folder: Path
    report: Path
    read: set[Path] = field(default_factory=set, compare=False)

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
        """What it shares with runs that differ in their seed or host only."""
        return re.sub(r"_(seed|host)\d+$", "", self.name)

    @property
    def is_analysed(self) -> bool:
        """Whether there is a report."""
        return len(self.table("headline")) > 0

    def table(self, name: str) -> pd.DataFrame:
        """One of the report's tables; empty without a report."""
        for path in (self.report / "tables" / f"{name}.csv", self.report / "tables" / f"{name}.csv.gz"):
            if path.exists() and path.stat().st_size > 1:
                self.read.add(path)
                return pd.read_csv(path)
        return pd.DataFrame()

    def keep(self, folder: Path) -> None:
        """Copy run.json and every table that was read, so that what was made of them can be made again."""
        (folder / "tables").mkdir(parents=True, exist_ok=True)
        (folder / "run.json").write_bytes((self.folder / "run.json").read_bytes())
        for path in self.read:
            content = path.read_bytes()
            packed = content if path.suffix == ".gz" else gzip.compress(content, mtime=0)
            (folder / "tables" / f"{path.name.removesuffix('.gz')}.gz").write_bytes(packed)

    @property
    def complete_steps(self) -> pd.DataFrame:
        """Rank and number of every complete step."""
        steps = self.table("steps")
        return steps.loc[is_true(steps["is_complete"]), ["rank", "step"]]

    @property
    def step_ms(self) -> float | None:
        """Mean un-profiled step time."""
        time = (self.facts["step_time_ns"] or {}).get("unprofiled")
        return time and time["mean"] / MS

    def peak_gib(self, which: str = "allocated") -> float | None:
        """Highest peak of any rank in the un-profiled steps."""
        ranks = self.facts["memory"]
        return ranks and max(rank[f"peak_{which}_bytes"] for rank in ranks) / GIB


def repeated(runs: Iterable[Run]) -> dict[str, list[Run]]:
    """Runs that were timed, by what they share; the one without a suffix first."""
    found: dict[str, list[Run]] = {}
    for run in sorted(runs, key=lambda run: run.name != run.label):
        if run.step_ms is not None:
            found.setdefault(run.label, []).append(run)
    return found


def runs_of(folder: Path, reports: Path) -> Iterator[Run]:
    """The runs of one set's folder: A's strategies from simple to sharded, others by name."""
    found = [path.parent for path in folder.glob("*/run.json")]
    place = {name: number for number, name in enumerate(A_ORDER)}
    for run in sorted(found, key=lambda path: (place.get(path.name, len(place)), _numbered(path.name))):
        yield Run(run, reports / folder.name / run.name)


def _numbered(name: str) -> list[str | int]:
    """A key that sorts 2 before 16."""
    return [int(part) if part.isdigit() else part for part in re.split(r"(\d+)", name)]


def is_true(column: pd.Series) -> pd.Series:
    """A CSV's column of True, False and nothing, where nothing is False."""
    return column.astype("boolean").fillna(value=False)
