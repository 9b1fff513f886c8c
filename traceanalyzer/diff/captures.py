"""One capture reduced to what a comparison needs, and its scales."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar, cast

import msgspec
import numpy as np
import pandas as pd

from traceanalyzer.analyses import ANALYSES, Result, Results
from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.analyses.breakdown import complete_steps
from traceanalyzer.analyses.breakdown import shared_steps as steps_of_all
from traceanalyzer.errors import InputError
from traceanalyzer.job.run_info import RunInfo, legible
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.selection import steps_text

if TYPE_CHECKING:
    from pandas.api.typing import DataFrameGroupBy

    from traceanalyzer.analyses.results import Tables

T = TypeVar("T")


# What a stored capture and a summary.json may hold: checked when read, so that nothing after meets anything else.


class StoredCapture(msgspec.Struct, frozen=True, kw_only=True):
    """A capture as a baseline holds it."""

    format: Literal["traceanalyzer-capture"] = "traceanalyzer-capture"
    format_version: Literal[1]
    label: str
    steps: tuple[int, ...]
    is_exact: bool
    notes: tuple[str, ...]
    info: RunInfo | None = None
    results: dict[str, list[dict[str, Any]]]


class StoredBaseline(msgspec.Struct, frozen=True):
    """A baseline's file; old ones do not say when they were saved."""

    label: str
    captures: Annotated[list[StoredCapture], msgspec.Meta(min_length=1)]
    saved: str | None = None


class StoredSummary(msgspec.Struct, frozen=True):
    """A summary.json, of which that is read that is used."""

    format_version: Literal[1, 2, 3, 4]
    results: dict[str, list[dict[str, Any]]]
    label: str | None = None
    notes: tuple[str, ...] = ()
    run_info: RunInfo | None = None
    files: dict[str, Any] = {}


def converted(value: Any, kind: type[T], where: str) -> T:
    """What a file holds.

    Raises:
        InputError: something that is needed is missing, or is something else.
    """
    try:
        return msgspec.convert(legible(value), kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: damaged or made by another version ({error}); make it again") from error


def of_rows(results: Mapping[str, list[dict[str, Any]]], where: str) -> dict[str, pd.DataFrame]:
    """Tables of rows of JSON, with all columns of their analyses; a missing column is absent.

    Raises:
        InputError: a row or a value is not what its analysis gives; the message says where.
    """
    return {name: _table(name, rows, f"{where}: {name}") for name, rows in results.items()}


def _table(name: str, rows: list[dict[str, Any]], where: str) -> pd.DataFrame:
    known = result_class(name)
    if known is None:
        return pd.DataFrame(rows).convert_dtypes()
    kind: Any = list[_row_of(name)]  # type: ignore[misc]  # a type that is made here
    made = map(msgspec.structs.astuple, converted(rows, kind, where))
    with np.errstate(all="ignore"):  # numbers that are too large for integers stay as they are
        frame = pd.DataFrame(made, columns=list(known.columns)).convert_dtypes()
    if known.keys == ("rank",) and frame["rank"].isna().any():
        raise InputError(f"{where}: a row names no rank; make it again")
    if known.keys and (again := frame[frame.duplicated(list(known.keys))]).size:
        which = ", ".join(f"{key} {again[key].iloc[0]}" for key in known.keys)
        raise InputError(f"{where} has two rows of {which}; make it again")
    return frame


_NUMBER = Annotated[float, msgspec.Meta(gt=-(2.0**63), lt=2.0**63)] | int

_OF_UNIT = {Unit.TEXT: str, Unit.FLAG: bool, Unit.ID: _NUMBER | str}


@cache
def _row_of(analysis: str) -> type[msgspec.Struct]:
    """A row of a Result; ranks and steps are whole numbers in all of them, for tables are joined by them."""
    columns = ANALYSES[analysis].result.columns
    kinds: dict[str, Any] = {name: _OF_UNIT.get(column.unit, _NUMBER) for name, column in columns.items()}
    kinds |= {name: int for name in ("rank", "step") if name in kinds}
    return msgspec.defstruct(analysis, [(name, kind | None, None) for name, kind in kinds.items()])


# One capture reduced to what a comparison needs: its Results over complete steps, and what ran.


WHOLE_RUN = -1
"""Stands for a rank where a table is of the whole run."""


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
        notes: what a reader must know of this capture.
        lacks: ranks of which another run of the comparison has a trace, and this one has none.
    """

    label: str
    source: str
    tables: Mapping[str, pd.DataFrame]
    steps: tuple[int, ...]
    is_exact: bool
    info: RunInfo | None = None
    notes: tuple[str, ...] = ()
    lacks: tuple[int, ...] = ()

    @property
    def basis(self) -> str:
        """What the figures cover, for people."""
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

    def of_steps(self, frame: pd.DataFrame) -> pd.DataFrame:
        """Rows of the compared steps; of a whole capture those without a step; all of a table without steps."""
        if "step" not in frame:
            return frame
        return frame[frame["step"].isin(self.steps) if self.steps else frame["step"].isna()]

    @property
    def known(self) -> RunInfo:
        """The run.json, an empty one where there is none."""
        return self.info or RunInfo()

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

    @classmethod
    def of(cls, label: str, captures: Iterable[Capture]) -> "Side":
        """These captures, all under one name."""
        return cls(label, tuple(replace(capture, label=label) for capture in captures))


def shared_steps(steps: pd.DataFrame | None, ranks: pd.DataFrame | None) -> tuple[int, ...]:
    """Numbers of the steps that are complete on every rank."""
    if steps is None or steps.empty or ranks is None:
        return ()
    complete = complete_steps(steps)
    return tuple(steps_of_all(complete, set(ranks["rank"])))


def is_of_steps(steps: pd.DataFrame | None, ranks: pd.DataFrame | None, wanted: tuple[int, ...]) -> bool:
    """Whether every rank was analysed over exactly these steps (without any: as a whole)."""
    if steps is None or steps.empty or ranks is None:
        return not wanted
    steps_of_rank = {
        rank: tuple(sorted(own)) if own.notna().all() else () for rank, own in steps.groupby("rank")["step"]
    }
    # Whole captures: of steps that are not complete.
    return all(steps_of_rank.get(rank, ()) == wanted for rank in ranks["rank"])


def known_sums(groups: "DataFrameGroupBy", columns: Sequence[str]) -> pd.DataFrame:
    """The sums of each group: a sum with an unknown part is unknown."""
    own = groups[list(columns)]
    sums: pd.DataFrame = own.sum(min_count=1)
    return sums.where(own.count().eq(groups.size(), axis=0))


def result_class(analysis: str) -> type[Result] | None:
    """The Result that an analysis gives; `None` for a name that this version does not know."""
    return ANALYSES[analysis].result if analysis in ANALYSES else None


def of_results(results: Results) -> dict[str, pd.DataFrame]:
    """Frames of all Results that are not a row for each event."""
    return {name: result.to_frame() for name, result in results.items() if not result.is_detail}


def to_json(capture: Capture) -> dict[str, Any]:
    """A capture as plain values; `of_stored` reads it again."""
    tables = {name: plain_rows(frame) for name, frame in capture.tables.items()}
    return msgspec.to_builtins(
        StoredCapture(
            format_version=1,
            label=capture.label,
            steps=capture.steps,
            is_exact=capture.is_exact,
            notes=capture.notes,
            info=capture.info,
            results=tables,
        )
    )


def of_stored(stored: StoredCapture, where: str) -> Capture:
    """A capture from what `to_json` gave."""
    tables = of_rows(stored.results, where)
    return Capture(stored.label, "baseline", tables, stored.steps, stored.is_exact, stored.info, stored.notes)


# By what a capture's sums are divided so that two runs can be compared: steps, or tokens.


@dataclass(frozen=True, slots=True)
class Scale:
    """Whether figures cover an optimizer step, a thousand tokens or a whole capture, and its name."""

    name: str
    per_token: bool = False

    def divisor(self, capture: Capture) -> float:
        """By what this capture's sums over its steps are divided.

        Per token: by the thousands of tokens that one rank had its share of (tokens of a step / world size · steps),
        so that runs of different batch, accumulation or world size are compared by GPU time for equal work.
        """
        return capture.per * self.work(capture)

    def work(self, capture: Capture) -> float:
        """What one step of this capture is: 1, or the thousands of tokens that a rank has its share of."""
        if not self.per_token:
            return 1.0
        tokens, size = tokens_per_step(capture), world_size(capture)
        assert tokens and size, "per-token figures need tokens and world size of every run"  # noqa: PT018
        return tokens / size / 1_000


STEP = Scale("optimizer step")

CAPTURE = Scale("whole capture")

TOKEN = Scale("1,000 tokens of a rank", per_token=True)


def tokens_per_step(capture: Capture) -> int | None:
    """Tokens that one optimizer step of all ranks consumes, from run.json."""
    tokens = capture.known.tokens_per_step
    return tokens if tokens and tokens > 0 else None


def world_size(capture: Capture) -> int | None:
    """Ranks of the job: as the traces say, else run.json."""
    ranks = capture.table("ranks")
    known = ranks["world_size"].dropna() if ranks is not None else list[int]()
    size = int(max(known)) if len(known) else capture.known.world_size
    return size if size and size > 0 else None


_PROFILERS = {"kineto": "PyTorch's profiler", "torch": "PyTorch's profiler", "nsys": "Nsight Systems"}


def profiler(capture: Capture) -> str | None:
    """`PyTorch's profiler` or `Nsight Systems`, by the traces, else by run.json."""
    frame = capture.table("ranks")
    formats = sorted(frame["format"].dropna().astype("str").unique()) if frame is not None and "format" in frame else []
    stated = (capture.known.profile or {}).get("profiler")
    named = formats or ([str(stated)] if stated else [])
    return " and ".join(_PROFILERS.get(name, name) for name in named) or None
