"""A report as CSV, JSON, Parquet and an Excel workbook: the same rows and column names as the library's."""

import csv
import io
import json
from collections.abc import Collection, Iterable, Iterator, Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import msgspec
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.base import plain_values
from traceanalyzer.errors import needs_extra
from traceanalyzer.files.bounds import give_back_grown
from traceanalyzer.findings import Finding
from traceanalyzer.meaning.columns import Column
from traceanalyzer.meaning.vocabulary import GRAVE
from traceanalyzer.model import RankTrace
from traceanalyzer.model.schema import TABLES
from traceanalyzer.report import words
from traceanalyzer.report.contents import FORMAT_VERSION, Report
from traceanalyzer.report.words import split
from traceanalyzer.report.writers import write_text


def write_csv(report: Report, folder: Path) -> list[Path]:
    """`summary.csv` (`summary_of`), `tables/<analysis>.csv`, `tables/index.md`.

    Tables of more than `MOST_CSV_ROWS` rows are Parquet files, as with `write_parquet`.
    """
    places = _places(report, folder, "csv")
    paths = []
    for name, path in places.items():
        give_back_grown()
        if len(report.results[name]) > MOST_CSV_ROWS:
            paths.append(_write_parquet(report, folder, name))
        else:
            write_frame(report.results[name].to_frame(), path)
            paths.append(path)
    summary = folder / "summary.csv"
    write_frame(summary_of(report), summary)
    return [summary, _write_index(report, folder, paths), *paths]


def summary_of(report: Report) -> pd.DataFrame:
    """A row for each rank over the steps of the page: its headline, collectives, memory, and caveat.

    `<collective>_ns` and `<collective>_calls` are of these steps, too; memory is of the whole capture. `p50` and `p95`
    are levels that tensors did not exceed for half and for 95% of the time.
    """
    tables = {name: result.to_frame() for name in _SUMMARISED if (result := report.results.get(name)) is not None}
    table = tables["headline"] if len(tables.get("headline", ())) else tables["breakdown"]
    table = table.assign(comm_pct=100 * table["comm_ns"] / table["window_ns"])
    if len(calls := tables.get("calls", pd.DataFrame())):
        steps = tables["steps"].loc[tables["steps"]["is_complete"].fillna(value=False), ["rank", "step"]]
        own = calls.merge(steps, on=["rank", "step"]) if len(steps) else calls
        own = own.assign(ns=own["end_ns"] - own["start_ns"], collective=own["collective"].astype("str"))
        sums = own.pivot_table(values="ns", index="rank", columns="collective", aggfunc=["sum", "count"], fill_value=0)
        sums.columns = [f"{collective}_{'ns' if how == 'sum' else 'calls'}" for how, collective in sums.columns]
        table = table.join(sums, on="rank").fillna(dict.fromkeys(sums, 0))
    if len(memory := tables.get("memory", pd.DataFrame())):
        wanted = [name for name in memory if name == "rank" or name.endswith(("allocated_bytes", "reserved_bytes"))]
        table = table.merge(memory[wanted], on="rank", how="left")
    if len(levels := tables.get("memory_levels", pd.DataFrame())):
        for part in (50, 95):
            found = {rank: _level(own, part / 100) for rank, own in levels.groupby("rank")}
            table[f"p{part}_allocated_bytes"] = table["rank"].map(found)
    return table.assign(caveat=table["rank"].map(_caveats(report)).astype("string"))


_SUMMARISED = ("headline", "breakdown", "steps", "calls", "memory", "memory_levels")


def _level(levels: pd.DataFrame, part: float) -> int:
    """The least level that is not exceeded for this part of the time."""
    lasting = levels.assign(ns=levels["time_ns"].shift(-1) - levels["time_ns"]).sort_values("allocated_bytes")
    reached = lasting["ns"].fillna(0).cumsum().to_numpy(dtype=float)
    place = int(reached.searchsorted(part * reached[-1]))
    return int(lasting["allocated_bytes"].iloc[min(place, len(lasting) - 1)])


def _caveats(report: Report) -> dict[int, str]:
    """By rank what the integrity checks found that makes its figures doubtful."""
    found: dict[int, list[str]] = {}
    for row in report.results["integrity"].rows() if "integrity" in report.results else ():
        if row["severity"] in GRAVE and row["rank"] is not None:
            found.setdefault(row["rank"], []).append(row["sentence"])
    return {rank: " ".join(sentences) for rank, sentences in found.items()}


MOST_CSV_ROWS = 100_000
"""A longer table has a row for each operation of many ranks: some 40 MB of text, which Parquet holds in 1 to 2."""


def write_json(report: Report, folder: Path) -> list[Path]:
    """`summary.json`: what the report says, without the tables that have a row for each event.

    Of a job of many ranks the longest tables are Parquet files beside it, which it names.
    """
    path = folder / "summary.json"
    moved = beside_json(report)
    write_text(path, _by_line(as_json(report, moved)))
    return [path, *(_write_parquet(report, folder, name) for name in moved)]


def _by_line(content: Mapping[str, Any]) -> str:
    """The content with a line for each key, and for each row of a table."""
    results = [
        "\n".join((f"{_text(name)}: [", ",\n".join(map(_text, rows)), "]")) for name, rows in content["results"].items()
    ]
    lines = {name: f"{_text(name)}: {_text(value)}" for name, value in content.items() if name != "results"}
    lines["results"] = "\n".join(('"results": {', ",\n".join(results), "}"))
    return "\n".join(("{", ",\n".join(lines[name] for name in content), "}", ""))


_text = json.JSONEncoder(allow_nan=False, ensure_ascii=False).encode  # made once: there are tens of thousands of rows


MOST_JSON_ROWS = 25_000
"""Of all tables of `summary.json` together: 7 to 9 MB."""

_STAYS = 2_000
"""Tables of no more rows stay in it: they have one a rank, or say what the job is."""


def beside_json(report: Report) -> tuple[str, ...]:
    """The tables that `summary.json` has no room for, longest first."""
    sizes = {name: len(result) for name, result in report.results.items() if not result.is_detail}
    total, moved = sum(sizes.values()), []
    for name, rows in sorted(sizes.items(), key=lambda item: -item[1]):
        if total <= MOST_JSON_ROWS or rows <= _STAYS:
            break
        moved.append(name)
        total -= rows
    return tuple(moved)


def _write_parquet(report: Report, folder: Path, name: str) -> Path:
    from pyarrow import parquet  # noqa: PLC0415 - few runs have a table that is so long

    path = folder / "tables" / f"{name}.parquet"
    path.parent.mkdir(parents=True, exist_ok=True)
    frame = report.results[name].to_frame()
    schema = pa.Schema.from_pandas(frame, preserve_index=False)
    with parquet.ParquetWriter(path, schema) as file:
        for part in _parts(frame):
            file.write_table(pa.Table.from_pandas(part, schema, preserve_index=False))
    return path


def write_parquet(report: Report, folder: Path) -> list[Path]:
    """`tables/<analysis>.parquet` and `tables/index.md`."""
    paths = [_write_parquet(report, folder, name) for name in _places(report, folder, "parquet")]
    return [_write_index(report, folder, paths), *paths]


def write_events(trace: RankTrace, folder: Path) -> None:
    """Write every event table of a rank as `<table>/rank_<r>.parquet`, with its rank; `gpu_ops` has its step too."""
    for name in TABLES:
        frame = trace.table(name).copy()
        if name == "gpu_ops" and len(trace.steps):
            numbers = trace.steps["step"].astype("Int64")
            frame["step"] = numbers.reindex(trace.op_step).array  # row -1 is none
        frame.insert(0, "rank", trace.rank)
        path = folder / name / f"rank_{trace.rank}.parquet"
        path.parent.mkdir(parents=True, exist_ok=True)
        frame.to_parquet(path, index=False)


def _write_index(report: Report, folder: Path, paths: Iterable[Path]) -> Path:
    """`tables/index.md`: which tables there are, those with rows first as in a report, and what a row of each is."""
    file_of = {path.stem: path.name for path in paths}
    index = index_of({name: result for name, result in report.results.items() if name in file_of})
    index = index.assign(file=index["table"].map(file_of), row=index["row"].str.replace("|", "\\|", regex=False))
    rows = index.sort_values("rows", key=lambda rows: rows == 0, kind="stable").itertuples(index=False)
    lines = ["# Tables", "", _bars(index.columns), _bars(["---"] * len(index.columns)), *map(_bars, rows)]
    return write_text(folder / "tables" / "index.md", "\n".join(lines) + "\n")


def index_of(results: Mapping[str, Result]) -> pd.DataFrame:
    """A row for each Result: its name, rows, heading, what a row is, and the columns that together name one."""
    rows = [(name, len(one), one.title, one.meaning(), ", ".join(one.keys)) for name, one in results.items()]
    return pd.DataFrame(rows, columns=["table", "rows", "title", "row", "key"])


def _bars(cells: Iterable[Any]) -> str:
    return f"| {' | '.join(map(str, cells))} |"


def as_json(report: Report, moved: Collection[str] = ()) -> dict[str, Any]:
    """The content of `summary.json`; absent values are null, `doubted` says which results to read with care and why.

    `moved` tables are not in `results` but named in `files`, and the format's version is then the next one.
    """
    return {
        "format_version": FORMAT_VERSION + bool(moved),
        "label": report.label,
        "created": report.created,
        "version": report.version,
        "command": report.command,
        "run_info": msgspec.to_builtins(report.run_info) if report.run_info else None,
        "ranks": report.results["ranks"].to_frame()["rank"].tolist(),
        "results": {
            name: result.rows() for name, result in report.results.items() if not result.is_detail and name not in moved
        },
        "files": {name: {"path": f"tables/{name}.parquet", "rows": len(report.results[name])} for name in moved},
        "tables": {name: described(result) for name, result in report.results.items() if not result.is_detail},
        "doubted": words.doubted(report.results),
        "findings": [finding_as_json(finding) for finding in report.findings],
        "skipped": [{"what": item.what, "why": item.why} for item in report.skipped],
        "notes": [*report.notes, *report.remarks],
        "memory_snapshots": list(report.snapshots),
    }


def described(result: Result) -> dict[str, Any]:
    """What a table's rows and columns mean, for who reads it without this program."""
    return {
        "title": result.title,
        "row": result.meaning(),
        "keys": list(result.keys),
        "columns": {
            name: {"definition": column.definition, "unit": str(column.unit), "adds": str(column.adds)}
            for name, column in result.columns.items()
        },
    }


def finding_as_json(finding: Finding) -> dict[str, Any]:
    """A finding as `summary.json` has it."""
    saves = finding.saves
    return {
        "id": finding.kind,
        "severity": finding.severity,
        "headline": finding.headline,
        "why": finding.why,
        "fix": finding.fix,
        "saves": saves and saves.to_dict(),
        "confidence": saves and {"level": saves.level, "limit": saves.limit or None, "remedy": saves.remedy or None},
        "caveat": finding.caveat or None,
        "scope": {"ranks": list(finding.ranks or finding.named), "steps": finding.steps and list(finding.steps)},
        "is_blamed": bool(finding.ranks),
        "cause": finding.cause,
        "is_about_capture": finding.is_about_capture,
        "evidence": list(finding.evidence),
        "table": finding.table,
        "interval_ns": finding.interval_ns and list(finding.interval_ns),
        "what_if": finding.what_if,
        "also": [finding_as_json(item) for item in finding.also],
    }


def write_frame(frame: pd.DataFrame, path: Path) -> None:
    """Write a table as CSV that no spreadsheet runs as formulas."""
    with path.open("wb") as file:
        file.write(_header([str(name) for name in frame]))
        for part in _parts(frame):
            columns = {str(name): _inert(values) for name, values in part.items()}
            pyarrow.csv.write_csv(pa.table(columns), file, pyarrow.csv.WriteOptions(include_header=False))


def _parts(frame: pd.DataFrame) -> Iterator[pd.DataFrame]:
    for first in range(0, len(frame) if len(frame.columns) else 0, _ROWS_AT_ONCE):
        yield frame.iloc[first : first + _ROWS_AT_ONCE]


_ROWS_AT_ONCE = 1 << 15
"""Of a table as text: all of one with a row for each of millions of calls would take more memory than the rest."""


def _inert(values: pd.Series) -> Any:
    """A column for Arrow: mixed objects as texts, and texts, each distinct one looked at once, as none that is run."""
    if values.dtype == object:
        values = values.map(str, na_action="ignore")
    if isinstance(values.dtype, pd.StringDtype) or values.dtype == object:
        codes, distinct = pd.factorize(values)
    elif isinstance(values.dtype, pd.CategoricalDtype):
        codes, distinct = values.cat.codes.to_numpy(), values.cat.categories
    else:
        return pa.array(values, from_pandas=True)
    texts = pc.replace_substring_regex(pa.array(distinct.astype("object"), pa.string()), _FORMULA, r"'\1")
    return pa.DictionaryArray.from_arrays(pa.array(codes, mask=codes < 0), texts)


def _header(names: list[str]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\n").writerow(names)
    return text.getvalue().encode()


_FORMULA = r"^([\s\v\pZ]*[=+@＝＋＠－-])"


def _places(report: Report, folder: Path, suffix: str) -> dict[str, Path]:
    """Files of the tables, by Result."""
    tables = folder / "tables"
    tables.mkdir(parents=True, exist_ok=True)
    return {name: tables / f"{name}.{suffix}" for name, result in report.results.items() if not result.is_event_copy}


MOST_ROWS = 1_048_575
"""A sheet holds one row more, which is the heading."""

_LONGEST_NAME = 31
_LONGEST_TEXT = 32_767
_WIDEST = 60
_LARGEST_EXACT = 2**53


def write_workbook(report: Report, folder: Path) -> list[Path]:
    """`summary.xlsx`: whole numbers stay so (as texts where a cell would round them), what is absent is an empty cell.

    Raises:
        UsageError: the package XlsxWriter is not installed.
    """
    try:
        import xlsxwriter  # noqa: PLC0415 - an extra
    except ImportError as error:
        raise needs_extra("--format xlsx needs the package XlsxWriter", "excel") from error
    path = folder / "summary.xlsx"
    tables = {name: result for name, result in report.results.items() if not result.is_event_copy and len(result)}
    # Texts come from traces: none of them may become a formula or a link.
    options = {"constant_memory": True, "strings_to_formulas": False, "strings_to_urls": False}
    with xlsxwriter.Workbook(path, options) as book:
        _sheet(book, "summary", _summary(report))
        _sheet(book, "tables", index_of(tables))
        for name, result in tables.items():
            _sheet(book, name, result.to_frame().iloc[:MOST_ROWS], result.columns)
    return [path]


def _sheet(book: Any, name: str, frame: pd.DataFrame, meanings: Mapping[str, Column] = MappingProxyType({})) -> None:
    """A heading that stays in sight, with each column's definition as a comment, and the rows."""
    sheet, bold = book.add_worksheet(name[:_LONGEST_NAME]), book.add_format({"bold": True})
    sheet.freeze_panes(1, 0)
    sheet.autofilter(0, 0, len(frame), max(len(frame.columns) - 1, 0))
    columns = {str(head): [_cell(value) for value in plain_values(values)] for head, values in frame.items()}
    for place, (head, cells) in enumerate(columns.items()):
        sheet.set_column(place, place, min(max(map(len, map(str, (head, *cells[:200])))) + 2, _WIDEST))
        sheet.write(0, place, head, bold)
        if head in meanings:
            sheet.write_comment(0, place, f"{meanings[head].definition} [{meanings[head].unit}]")
    for number, row in enumerate(zip(*columns.values(), strict=True), 1):
        sheet.write_row(number, 0, row)


def _summary(report: Report) -> pd.DataFrame:
    """The verdict, what to know before trusting the figures, and the findings with their fields."""
    skipped = [f"Skipped {sentence}" for sentence in words.skipped(report.skipped)]
    verdict = words.sentences(report, split(report.results))[:1]
    said = [*verdict, *report.remarks, *words.of_what_is_here(report), *skipped]
    findings = [
        {"Severity": finding.severity, report.label: finding.headline, **words.fields(finding)}
        for finding in report.findings
    ]
    return pd.DataFrame([*({report.label: sentence} for sentence in said), *findings], dtype=object)


def _cell(value: Any) -> Any:
    if isinstance(value, int) and abs(value) > _LARGEST_EXACT:
        return str(value)  # a cell's number is a double: a moment would lose its last digits
    if isinstance(value, float):
        return value if abs(value) != float("inf") else str(value)
    return value if value is None or isinstance(value, bool | int) else str(value)[:_LONGEST_TEXT]
