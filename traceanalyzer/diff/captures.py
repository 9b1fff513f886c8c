"""One capture reduced to what a comparison needs: its Results over complete steps, and what ran."""

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, cast

import msgspec
import pandas as pd

from traceanalyzer.analyses import ANALYSES, Result, Results
from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.analyses.time import headline
from traceanalyzer.analyses.time.steps import complete_steps
from traceanalyzer.diff import splits, stored
from traceanalyzer.errors import InputError
from traceanalyzer.job.run_info import RunInfo
from traceanalyzer.selection import steps_text

if TYPE_CHECKING:
    from traceanalyzer.analyses.results import Tables

FORMAT = "traceanalyzer-capture"

FORMAT_VERSION = 1


@dataclass(frozen=True, slots=True)
class Capture:
    """The small tables of one capture of one run.

    Attributes:
        label: name of the run.
        source: `traces`, `summary.json` or `baseline`.
        tables: `Result.to_frame()` by analysis, without tables that have a row for each event.
        steps: numbers of the steps that are complete on every rank; none when the capture is compared as a whole.
        is_exact: whether tables without a step column are of exactly `steps` (or of a whole capture without steps).
        info: the run.json beside the traces.
        lanes: stretches of one step by rank and kind, for a picture; `None` when only tables are known.
        step_calls: communication calls of the same step, by which pictures of runs are tied.
        notes: what a reader must know of this capture.
        dimensions: of the matrix products' arguments (`matrix_shapes.dimensions`); none where only tables are known.
        lacks: ranks of which another run of the comparison has a trace, and this one has none.
    """

    label: str
    source: str
    tables: Mapping[str, pd.DataFrame]
    steps: tuple[int, ...]
    is_exact: bool
    info: RunInfo | None = None
    lanes: pd.DataFrame | None = None
    step_calls: pd.DataFrame | None = None
    notes: tuple[str, ...] = ()
    dimensions: tuple[int, ...] = ()
    lacks: tuple[int, ...] = ()

    @property
    def basis(self) -> str:
        """What the figures are of, for people."""
        return steps_text(self.steps) if self.steps else "whole capture"

    @property
    def is_of_hosts(self) -> bool:
        """Whether hosts alone were recorded: no GPU work."""
        return self.table("headline") is None and self.table("host_work") is not None

    @property
    def per(self) -> int:
        """By what sums are divided: the number of steps, 1 for a whole capture."""
        return len(self.steps) or 1

    @property
    def table(self) -> "Tables":
        """An analysis's rows by its name; `None` when it is not there or has none."""
        return cast("Tables", self._table)

    def _table(self, analysis: str) -> pd.DataFrame | None:
        frame = self.tables.get(analysis)
        return frame if frame is not None and len(frame) else None


@dataclass(frozen=True, slots=True)
class Side:
    """One strategy in a comparison: one capture, or several repeats of it."""

    label: str
    captures: tuple[Capture, ...]

    @property
    def first(self) -> Capture:
        """The capture from which tables and facts are taken; repeats add to metrics only."""
        return self.captures[0]


def shared_steps(steps: pd.DataFrame | None, ranks: pd.DataFrame | None) -> tuple[int, ...]:
    """Numbers of the steps that are complete on every rank."""
    if steps is None or steps.empty or ranks is None:
        return ()
    complete = complete_steps(steps)
    return tuple(headline.shared_steps(complete, set(ranks["rank"])))


def is_of_steps(steps: pd.DataFrame | None, ranks: pd.DataFrame | None, wanted: tuple[int, ...]) -> bool:
    """Whether every rank was analysed over exactly these steps (without any: as a whole)."""
    if steps is None or steps.empty or ranks is None:
        return not wanted
    by_rank = {int(rank): own["step"] for rank, own in steps.groupby("rank")}
    if not wanted:  # whole captures, of steps that are not complete on every rank
        return all(int(rank) not in by_rank or by_rank[int(rank)].isna().any() for rank in ranks["rank"])
    return all(
        int(rank) in by_rank
        and not by_rank[int(rank)].isna().any()
        and tuple(sorted(int(step) for step in by_rank[int(rank)])) == wanted
        for rank in ranks["rank"]
    )


def result_class(analysis: str) -> type[Result] | None:
    """The Result that an analysis gives; `None` for a name that this version does not know."""
    return ANALYSES[analysis].result if analysis in ANALYSES else None


def of_results(results: Results) -> dict[str, pd.DataFrame]:
    """Frames of all Results that are not a row for each event; communication with `splits.COLUMNS`."""
    tables = {name: result.to_frame() for name, result in results.items() if not result.is_detail}
    return splits.with_splits(tables, results)


def of_rows(results: Any, where: str) -> dict[str, pd.DataFrame]:
    """Frames of the `results` of a JSON file.

    Raises:
        InputError: they are no tables, or hold what no analysis gives.
    """
    frames = {}
    for name, rows in stored.tables(results, where).items():
        known = result_class(name)
        columns = list(splits.columns_of(name, known.columns)) if known and not rows else None
        frames[name] = pd.DataFrame(rows, columns=columns).convert_dtypes()
    return frames


def to_json(capture: Capture) -> dict[str, Any]:
    """A capture as plain values; `of_json` reads it again. The picture of a step is left out."""
    return {
        "format": FORMAT,
        "format_version": FORMAT_VERSION,
        "label": capture.label,
        "steps": list(capture.steps),
        "is_exact": capture.is_exact,
        "info": msgspec.to_builtins(capture.info) if capture.info else None,
        "notes": list(capture.notes),
        "dimensions": list(capture.dimensions),
        "results": {name: plain_rows(frame) for name, frame in capture.tables.items()},
    }


def of_json(content: Any, where: str) -> Capture:
    """A capture from what `to_json` gave.

    Raises:
        InputError: it is something else, or of a newer format.
    """
    version = content.get("format_version") if isinstance(content, Mapping) else None
    if not isinstance(version, int) or content.get("format") != FORMAT or version > FORMAT_VERSION:
        raise InputError(f"{where}: not a baseline that this version can read; save it again with `baseline save`")
    told = stored.around(content, where)
    return Capture(
        label=told.label,
        source="baseline",
        tables=of_rows(content.get("results"), where),
        steps=told.steps,
        is_exact=told.is_exact,
        info=told.info,
        notes=told.notes,
        dimensions=told.dimensions,
    )


def labelled(capture: Capture, label: str) -> Capture:
    """The same under another name."""
    return dataclasses.replace(capture, label=label)
