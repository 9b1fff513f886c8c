"""One capture reduced to what a comparison needs, and its scales."""

import re
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
from traceanalyzer.analyses.replay.changes import RUN_TO_RUN
from traceanalyzer.errors import InputError
from traceanalyzer.job.run_info import RunInfo, legible
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.vocabulary import MOST_PIECES
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


# Whether runs can be of one model, as far as the shapes of their matrix products can tell.


_MATRIX = re.compile(r"\[(\d+), (\d+)\]")


def dimensions(capture: Capture) -> list[int]:
    """Lengths and widths of all arguments of matrix products, in order; none without shapes.

    Products of batches of matrices (attention) are left out: heads and their width are alike in most models.
    """
    table = capture.table("matrix_products")
    products = () if table is None else table["product"].dropna().unique()
    return sorted({int(size) for text in products for pair in _MATRIX.findall(str(text)) for size in pair})


def dimensions_text(capture: Capture) -> str | None:
    """The same for people, of many the largest; `None` where they are not known."""
    sizes = dimensions(capture)
    return ", ".join([*["…"] * (len(sizes) > MOST_PIECES), *map(str, sizes[-MOST_PIECES:])]) or None


def is_shared(captures: Sequence[Capture]) -> bool:
    """Whether every run that tells has a dimension of the first one that does.

    Runs of one model have its width at least, however they cut batch, matrices or layers; those of other models may
    share a dimension by chance.
    """
    first, *others = [set(own) for capture in captures if (own := dimensions(capture))] or [set[int]()]
    return all(first & other for other in others)


# Whether runs did the same work, as far as the model FLOPs that their traces hold can tell.


def model_flops(capture: Capture) -> float | None:
    """Model FLOPs of one step of all ranks, mean over the compared steps.

    `None` unless every rank of the job tells them for each of these steps in full (`covered_pct` 100): what is only a
    lower bound cannot be compared.
    """
    frame, size = capture.table("mfu"), world_size(capture)
    if frame is None or size is None or not capture.steps:
        return None
    own = capture.of_steps(frame)
    is_whole = len(own) == size * len(capture.steps) and bool((own["covered_pct"] >= 100).fillna(value=False).all())
    return float(own["model_flops"].sum()) / len(capture.steps) if is_whole else None


def model_flops_text(capture: Capture) -> str | None:
    """The same for people, and of one rank that does more than `RUN_TO_RUN` more than each other one its part."""
    flops = model_flops(capture)
    if flops is None:
        return None
    own = capture.of_steps(capture.tables["mfu"]).groupby("rank")["model_flops"].sum() / len(capture.steps)
    most = own.nlargest(2).astype("float64")
    is_uneven = len(most) > 1 and most.iloc[1] < most.iloc[0] * (1 - RUN_TO_RUN)
    whose = f", {most.iloc[0] / 1e12:,.4g} of them on rank {most.index[0]}" if is_uneven else ""
    return f"{flops / 1e12:,.4g} TFLOP{whose}"


def is_close(captures: Sequence[Capture]) -> bool:
    """Whether all captures tell, and the largest exceeds the least by no more than `RUN_TO_RUN` of itself."""
    flops = [model_flops(capture) for capture in captures]
    known = [value for value in flops if value is not None]
    return len(known) == len(flops) and max(known) - min(known) <= max(known) * RUN_TO_RUN
