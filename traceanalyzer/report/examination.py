"""How the doctor's examination is written: terminal, JSON, page."""

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from rich.console import Console
from rich.markup import escape

from traceanalyzer import __version__
from traceanalyzer.doctor import Diagnosis, Examination, FlightRecorder
from traceanalyzer.doctor.examination import TableName, tables
from traceanalyzer.job.run_info import nvlinks
from traceanalyzer.meaning.columns import Column
from traceanalyzer.meaning.vocabulary import GRAVE, numbered
from traceanalyzer.report import assets
from traceanalyzer.report.contents import LAYOUT
from traceanalyzer.report.table_view import TableView, console_table, view_of
from traceanalyzer.report.writers import write_text

# An examination as JSON.


FORMAT_VERSION = 1


def text(examination: Examination) -> str:
    """The whole examination: verdict, diagnoses, tables of what was read."""
    ras = examination.case.ras
    content = {
        "format_version": FORMAT_VERSION,
        "version": __version__,
        "verdict": examination.verdict,
        "diagnoses": [asdict(one) for one in examination.diagnoses],
        "tables": tables(examination.case),
        "ras": None if ras is None else asdict(ras),
        "notes": examination.notes,
    }
    return json.dumps(content, indent=1, ensure_ascii=False, allow_nan=False)


# The picture of a hang: a row a rank, suspects first, a column a collective; ranks that look alike share a row.


STATES = {
    "completed": "complete",
    "open": "called, not complete",
    "absent": "never called",
    "other": "called otherwise than most ranks",
    "gone": "no longer in the buffer",
}


@dataclass(frozen=True, slots=True)
class Row:
    """Ranks of one pattern, and the state of each column."""

    label: str
    is_suspect: bool
    states: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Picture:
    """One process group around the collective at which it hangs."""

    title: str
    seqs: tuple[int, ...]
    operations: tuple[str, ...]
    rows: tuple[Row, ...]
    left_out: int


def pictures(recorder: FlightRecorder, most_groups: int = 6) -> list[Picture]:
    """Groups with an absence or a mismatch, worst first; without any, groups with something not complete."""
    at = [(one.group, one.call.seq) for one in recorder.absences]
    at += [(one.group, one.seq) for one in recorder.mismatches]
    keys = {id(group): key for key, group in recorder.groups.items()}
    focus: dict[str, int] = {}
    for group, seq in at:
        focus[keys[id(group)]] = min(seq, focus.get(keys[id(group)], seq))
    if not focus:
        stuck = recorder.entries[(recorder.entries["state"] != "completed") & ~recorder.entries["is_p2p"]]
        focus = {str(key): int(seq) for key, seq in stuck.groupby("group", observed=True)["seq"].min().items()}
    return [_picture(recorder, key, seq) for key, seq in list(focus.items())[:most_groups]]


def _picture(recorder: FlightRecorder, key: str, focus: int) -> Picture:
    entries = recorder.entries
    calls = entries[(entries["group"] == key) & ~entries["is_p2p"] & (entries["seq"] >= 0)]
    seqs = sorted(calls["seq"].unique().tolist())
    at = seqs.index(focus) if focus in seqs else len(seqs) - 1
    first = max(0, min(at - LAYOUT.hang_columns // 2, len(seqs) - LAYOUT.hang_columns))
    seqs = seqs[first : first + LAYOUT.hang_columns]
    own = calls[calls["seq"].isin(seqs)]
    usual = own["operation"].astype(str).groupby(own["seq"]).agg(lambda names: names.mode().iloc[0])
    differs = own["operation"].astype(str) != own["seq"].map(usual)
    for mismatch in recorder.mismatches:
        if recorder.groups[key] is mismatch.group:
            differs |= (own["seq"] == mismatch.seq) & own["rank"].isin(list(mismatch.others))
    state = own["state"].eq("completed").map({True: "completed", False: "open"}).mask(differs, "other")
    table = own.assign(look=state).drop_duplicates(["rank", "seq"], keep="last").pivot_table(
        index="rank", columns="seq", values="look", aggfunc="first"
    )  # fmt: skip
    group = recorder.groups[key]
    ranks = sorted({*(group.ranks or ()), *table.index} & set(recorder.dumps))
    table = table.reindex(index=ranks, columns=seqs)
    return _rows(group.label, table, usual.reindex(seqs).astype(str).tolist())


def _rows(label: str, table: pd.DataFrame, operations: list[str]) -> Picture:
    """Ranks by pattern, the rarest pattern first: those are the suspects."""
    # Gaps before a rank's first call left the buffer; those after its last call never came.
    known = table.notna().to_numpy(bool)  # a table without columns has no type of its own
    is_gone = ~np.logical_or.accumulate(known, axis=1) & known.any(axis=1, keepdims=True)
    filled = table.mask(~known, "absent").mask(is_gone, "gone")
    patterns: dict[tuple[str, ...], list[int]] = {}
    for rank, *states in filled.itertuples(name=None):
        patterns.setdefault(tuple(states), []).append(int(rank))
    usual = max(patterns, key=lambda states: len(patterns[states]), default=())
    rows = [
        Row(numbered("rank", ranks, 4), states != usual and not {"absent", "other"}.isdisjoint(states), states)
        for states, ranks in sorted(patterns.items(), key=lambda item: (len(item[1]), item[1][0]))
    ]
    ordered = sorted(rows, key=lambda row: not row.is_suspect)
    return Picture(label, tuple(table.columns.tolist()), tuple(operations), tuple(ordered[:LAYOUT.hang_rows]),
                   max(0, len(ordered) - LAYOUT.hang_rows))  # fmt: skip


# An examination as one HTML page that needs no network, in the report's style.


_TITLES: Mapping[TableName, str] = {
    "communicators": "Ranks and communicators",
    "transports": "Transport between ranks",
    "rings": "Rings",
    "algorithms": "Algorithms and protocols chosen",
    "environment": "Environment",
    "warnings": "Warnings",
    "last_calls": "Last collective of each rank",
    "late_ranks": "Who comes last",
    "bandwidth": "Bus bandwidth by collective and size",
    "products": "Speed of each rank's matrix products",
}


def write(examination: Examination, folder: Path, command: str | None = None) -> list[Path]:
    """`doctor.html` and `doctor.json`."""
    return [
        write_text(folder / "doctor.html", page(examination, command)),
        write_text(folder / "doctor.json", text(examination) + "\n"),
    ]


def page(examination: Examination, command: str | None = None) -> str:
    """The page's text."""
    made = tables(examination.case)
    recorder = examination.case.recorder
    context: dict[str, Any] = {
        "examination": examination,
        "verdict": examination.verdict,
        "facts": _facts(examination),
        "topology": examination.case.topology,
        "is_nvlink": nvlinks,
        "pictures": [] if recorder is None else pictures(recorder),
        "states": STATES,
        "tables": {name: _table(name, made[name]) for name in _TITLES if name in made},
        "command": command,
    }
    return assets.render("doctor.html", context, entry="plain.js", styles=("doctor.css",))


def _facts(examination: Examination) -> list[str]:
    """What was given."""
    case = examination.case
    facts = []
    if case.topology is not None:
        facts.append(f"topology of {len(case.topology.gpus)} GPUs and {len(case.topology.nics)} network cards")
    facts += [f"NCCL log {log.label}, {log.nccl_lines:,} lines" for log in case.logs[:4]]
    if case.recorder is not None:
        facts.append(f"flight recorder of {len(case.recorder.dumps):,} ranks, {len(case.recorder.entries):,} calls")
    if case.monitors is not None:
        facts.append(f"monitors, {len(case.monitors.calls):,} calls or means in {case.monitors.files} files")
    if case.ras is not None:
        facts.append("RAS report")
    return facts


def _table(name: TableName, rows: list[dict[str, Any]]) -> TableView:
    told = [{column: _written(value) for column, value in row.items()} for row in rows]
    frame = pd.DataFrame(told, dtype="object")  # a number beside none would become a float
    if "log" in frame and len(set(frame["log"])) == 1:
        frame = frame.drop(columns="log")
    moments = frame.columns.intersection(_MOMENTS)
    frame[moments] = frame[moments].map(_moment, na_action="ignore")
    return view_of(frame.convert_dtypes(), _TITLES[name], dict.fromkeys(moments, Column.text("UTC.")))


def _written(value: Any) -> Any:
    """The value; a text without what UTF-8 cannot hold, such as half of a character that a log names by its number."""
    return value.encode("utf-8", "replace").decode() if isinstance(value, str) else value


def _moment(since_1970_ns: int) -> str:
    seconds, ns = divmod(since_1970_ns, 10**9)
    return f"{datetime.fromtimestamp(seconds, UTC):%Y-%m-%d %H:%M:%S}.{ns:09d}"


_MOMENTS = ("created_ns", "since_ns")


# What the doctor prints: diagnoses with what they rest on, and the topology as a matrix.


_MARKS = {
    "high": "[bold red]high[/]",
    "medium": "[bold yellow]medium[/]",
    "low": "[bold]low[/]",
    "info": "[green]info[/]",
}


def show(examination: Examination, console: Console) -> None:
    """Print it all."""
    if examination.case.topology is not None:
        paths = pd.DataFrame(tables(examination.case)["topology"])
        console.print(console_table(view_of(paths, "Paths between devices", {}), console.width))
    if all(one.severity == "info" for one in examination.diagnoses):
        console.print(f"[bold]•[/] {examination.verdict[0]}", highlight=False)
    for one in examination.diagnoses:
        _diagnosis(one, console)
    for note in examination.notes[:12]:
        console.print(f"[yellow]Note:[/] {escape(note)}", highlight=False)
    if len(examination.notes) > 12:
        console.print(f"[yellow]Note:[/] {len(examination.notes) - 12} more such; --json has them.", highlight=False)


def show_troubles(examination: Examination, console: Console) -> None:
    """Print what is wrong, without what is in order."""
    for one in examination.diagnoses:
        if one.severity in GRAVE:
            _diagnosis(one, console)


def _diagnosis(one: Diagnosis, console: Console) -> None:
    console.print(f"[bold]•[/] {_MARKS[one.severity]} {escape(one.diagnosis)}", highlight=False)
    if one.severity == "info":
        if one.caveat:
            console.print(f"  [dim]{escape(one.caveat)}[/]", highlight=False)
        return
    for name, text in (("Why", one.signal), ("Fix", one.recommendation), ("Note", one.caveat)):
        if text:
            console.print(f"  [dim]{name}:[/] {escape(text)}", highlight=False)
