"""One capture reduced to what a comparison needs, and its scales."""

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

import msgspec
import numpy as np
import pandas as pd

from traceanalyzer.analyses import ANALYSES, Result, Results
from traceanalyzer.analyses.base import plain_rows
from traceanalyzer.analyses.time import headline
from traceanalyzer.analyses.time.steps import complete_steps
from traceanalyzer.errors import InputError
from traceanalyzer.job.run_info import RunInfo, legible
from traceanalyzer.meaning.columns import Column, Unit
from traceanalyzer.selection import steps_text

if TYPE_CHECKING:
    from traceanalyzer.analyses.results import Tables


# What a file of stored tables may hold: checked when it is read, so that nothing after meets anything else.


ALIKE = 0.05
"""Of the larger one: amounts of two runs that differ by no more are the same."""

Rows = list[dict[str, Any]]

T = TypeVar("T")

_MOST = 2**63


class StoredCapture(msgspec.Struct, frozen=True):
    """What a stored capture says besides its tables."""

    label: str
    steps: tuple[int, ...]
    is_exact: bool
    notes: tuple[str, ...]
    info: RunInfo | None = None
    dimensions: tuple[int, ...] = ()


class StoredSummary(msgspec.Struct, frozen=True):
    """What a summary.json says besides its tables, of that which is used."""

    label: str | None = None
    notes: tuple[str, ...] = ()
    run_info: RunInfo | None = None


def without_tables(content: Mapping[str, Any], kind: type[T], where: str) -> T:
    """What a file says besides its tables.

    Raises:
        InputError: something that is needed is missing, or is something else.
    """
    try:
        return msgspec.convert(legible({name: value for name, value in content.items() if name != "results"}), kind)
    except msgspec.ValidationError as error:
        raise InputError(f"{where}: damaged or made by another version ({error}); make it again") from error


def tables(results: Any, where: str) -> dict[str, Rows]:
    """The rows of each table, with all columns that its analysis has; a column that is not there is `None`.

    Raises:
        InputError: a table, a row or a value is not what its analysis gives; the message says where.
    """
    if not isinstance(results, Mapping):
        raise InputError(f"{where}: its results are no tables; make it again")
    return {str(name): _rows(str(name), rows, where) for name, rows in results.items()}


def _rows(name: str, rows: Any, where: str) -> Rows:
    if not isinstance(rows, list) or not all(isinstance(row, Mapping) for row in rows):
        raise InputError(f"{where}: {name} is no list of rows; make it again")
    known = ANALYSES[name].result if name in ANALYSES else None
    if known is None:
        return cast("Rows", legible(rows))
    columns, names = known.columns, list(known.columns)
    made = [{column: row.get(column) for column in names} for row in rows]
    for number, row in enumerate(made, 1):
        odd = next((column for column in names if not _fits(row[column], columns[column], column)), None)
        if odd is not None:
            unit = columns[odd].unit
            raise InputError(f"{where}: {name}, row {number}: {odd} is {row[odd]!a:.40}, not {_word(odd, unit)}")
        if known.keys == ("rank",) and row["rank"] is None:
            raise InputError(f"{where}: {name}, row {number}: it names no rank; make it again")
    (again, count), *_ = Counter(tuple(row[key] for key in known.keys) for row in made).most_common(1) or [((), 0)]
    if count > 1:
        which = ", ".join(f"{key} {value}" for key, value in zip(known.keys, again, strict=True))
        raise InputError(f"{where}: {name} has two rows of {which}; make it again")
    return made


_WORDS = {Unit.TEXT: "a text", Unit.FLAG: "true or false", Unit.ID: "a number or a name"}


_HALF = re.compile("[\ud800-\udfff]")
"""Of a character: no file of UTF-8 can hold it."""

_NUMBERS = frozenset({"rank", "step"})
"""Columns by which tables are joined: whole numbers, wherever they are."""


def _word(name: str, unit: Unit) -> str:
    return "a whole number" if name in _NUMBERS else _WORDS.get(unit, "a number")


def _fits(value: Any, column: Column, name: str) -> bool:
    if value is None:
        return True
    if name in _NUMBERS:
        return type(value) in (int, float) and abs(value) < _MOST and value == int(value)
    if isinstance(value, bool):
        return column.unit is Unit.FLAG
    if isinstance(value, str):
        return column.unit in (Unit.TEXT, Unit.ID) and not _HALF.search(value)
    is_number = isinstance(value, int | float) and abs(value) < _MOST
    return is_number and column.unit not in (Unit.TEXT, Unit.FLAG)


# One capture reduced to what a comparison needs: its Results over complete steps, and what ran.


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
    notes: tuple[str, ...] = ()
    dimensions: tuple[int, ...] = ()
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
    return tuple(headline.shared_steps(complete, set(ranks["rank"])))


def is_of_steps(steps: pd.DataFrame | None, ranks: pd.DataFrame | None, wanted: tuple[int, ...]) -> bool:
    """Whether every rank was analysed over exactly these steps (without any: as a whole)."""
    if steps is None or steps.empty or ranks is None:
        return not wanted
    steps_of_rank = {
        rank: tuple(sorted(own)) if own.notna().all() else () for rank, own in steps.groupby("rank")["step"]
    }
    return all(
        steps_of_rank.get(rank, ()) == wanted for rank in ranks["rank"]
    )  # whole captures: of steps that are not complete


def result_class(analysis: str) -> type[Result] | None:
    """The Result that an analysis gives; `None` for a name that this version does not know."""
    return ANALYSES[analysis].result if analysis in ANALYSES else None


def of_results(results: Results) -> dict[str, pd.DataFrame]:
    """Frames of all Results that are not a row for each event."""
    return {name: result.to_frame() for name, result in results.items() if not result.is_detail}


def of_rows(results: Any, where: str) -> dict[str, pd.DataFrame]:
    """Frames of the `results` of a JSON file.

    Raises:
        InputError: they are no tables, or hold what no analysis gives.
    """
    frames = {}
    for name, rows in tables(results, where).items():
        known = result_class(name)
        columns = list(known.columns) if known and not rows else None
        with np.errstate(all="ignore"):  # numbers that are too large for integers stay as they are
            frames[name] = pd.DataFrame(rows, columns=columns).convert_dtypes()
    return frames


def to_json(capture: Capture) -> dict[str, Any]:
    """A capture as plain values; `of_json` reads it again."""
    facts = {name: msgspec.to_builtins(getattr(capture, name)) for name in StoredCapture.__struct_fields__}
    tables = {name: plain_rows(frame) for name, frame in capture.tables.items()}
    return {"format": FORMAT, "format_version": FORMAT_VERSION, **facts, "results": tables}


def of_json(content: Any, where: str) -> Capture:
    """A capture from what `to_json` gave.

    Raises:
        InputError: it is something else, or of a newer format.
    """
    version = content.get("format_version") if isinstance(content, Mapping) else None
    if not isinstance(version, int) or content.get("format") != FORMAT or version > FORMAT_VERSION:
        raise InputError(f"{where}: not a baseline that this version can read; save it again with `baseline save`")
    stored = without_tables(content, StoredCapture, where)
    return Capture(source="baseline", tables=of_rows(content.get("results"), where), **msgspec.structs.asdict(stored))


# By what a capture's sums are divided so that two runs can be compared: steps, or tokens.


TOKENS = 1000


@dataclass(frozen=True, slots=True)
class Scale:
    """Whether figures cover an optimizer step, a thousand tokens or a whole capture, and its name."""

    name: str
    per_token: bool = False
    is_of_a_moment: bool = False

    def divisor(self, capture: Capture) -> float:
        """By what this capture's sums over its steps are divided.

        Per token: by the thousands of tokens that one rank had its share of (tokens of a step / world size · steps),
        so that runs of different batch, accumulation or world size are compared by GPU time for equal work.
        """
        return 1.0 if self.is_of_a_moment else capture.per * self.work(capture)

    def work(self, capture: Capture) -> float:
        """What one step of this capture is: 1, or the thousands of tokens that a rank has its share of."""
        if not self.per_token:
            return 1.0
        tokens, size = tokens_per_step(capture), world_size(capture)
        assert tokens and size, "per-token figures need tokens and world size of every run"  # noqa: PT018
        return tokens / size / TOKENS


STEP = Scale("optimizer step")

CAPTURE = Scale("whole capture")

MOMENT = Scale("one moment", is_of_a_moment=True)

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


# Whether runs can be of one model, as far as the shapes of their matrix products can tell.


_MATRIX = re.compile(r"\[(\d+),\s*(\d+)\]")

_MOST_LISTED = 8


def dimensions(results: Results) -> tuple[int, ...]:
    """Lengths and widths of all two-dimensional arguments of matrix products, in order; none without shapes.

    Products of batches of matrices (attention) are left out: heads and their width are alike in most models.
    """
    table = results["efficiency"].to_frame() if "efficiency" in results else None
    if table is None or table.empty:
        return ()
    shapes = table.loc[table["family"] == "gemm", "shapes"].dropna().astype("str").unique()
    return tuple(sorted({int(size) for text in shapes for pair in _MATRIX.findall(text) for size in pair}))


def matrix_shapes_text(capture: Capture) -> str | None:
    """The largest for people; `None` where they are not known."""
    largest = capture.dimensions[-_MOST_LISTED:]
    more = "… " if len(capture.dimensions) > _MOST_LISTED else ""
    return more + ", ".join(map(str, largest)) if largest else None


def is_shared(captures: Sequence[Capture]) -> bool:
    """Whether every run that tells has a dimension of the first one that does.

    Runs of one model have its width at least, however they cut batch, matrices or layers; those of other models may
    share a dimension by chance.
    """
    known = [set(capture.dimensions) for capture in captures if capture.dimensions]
    return all(known[0] & other for other in known[1:])


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
    """The same for people, and of one rank that does more than `ALIKE` more than each other one its part."""
    flops = model_flops(capture)
    if flops is None:
        return None
    own = capture.of_steps(capture.tables["mfu"]).groupby("rank")["model_flops"].sum() / len(capture.steps)
    most = own.nlargest(2).astype("float64")
    is_uneven = len(most) > 1 and most.iloc[1] < most.iloc[0] * (1 - ALIKE)
    whose = f", {most.iloc[0] / 1e12:,.4g} of them on rank {most.index[0]}" if is_uneven else ""
    return f"{flops / 1e12:,.4g} TFLOP{whose}"


def is_close(captures: Sequence[Capture]) -> bool:
    """Whether all captures tell, and the largest exceeds the least by no more than `ALIKE` of itself."""
    flops = [model_flops(capture) for capture in captures]
    known = [value for value in flops if value is not None]
    return len(known) == len(flops) and max(known) - min(known) <= max(known) * ALIKE
