"""What is fuzzed: for each kind of input, how one damaged input is made and looked at."""

import gzip
import io
import json
import pickle
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any
from unittest.mock import patch

import numpy as np

from tests import nsys_builders, rocprof_builders
from tests.fuzz import kineto_oracle, seeds
from tests.fuzz.mutations import ODD_TEXTS, bytes_mutated, events_mutated, text_mutated, value_mutated
from tests.fuzz.outcome import WrongError
from tests.fuzz.tables import damage_database, damage_folder
from tests.fuzz.texts import kineto_bytes
from traceanalyzer.kinds import KindRules
from traceanalyzer.model import RankTrace
from traceanalyzer.readers import RankHint, ended_ns, reader_of

HINT = RankHint(0, "path")

Look = Callable[[], bool]
"""Looks at the input; whether something was said to be lost of it."""


@dataclass(frozen=True)
class Target:
    """A kind of input.

    Attributes:
        what: it is, for people.
        prepare: writes a damaged input into an empty folder and gives what looks at it.
        bytes_seeds: seeds for guided fuzzing of bytes, and what looks at bytes; `None` where it is not of bytes.
    """

    what: str
    prepare: Callable[[random.Random, Path], Look]


def read_trace(path: Path) -> bool:
    """Read a trace and check that its tables hold together."""
    reader = reader_of(path)
    if reader is None:
        return True
    reader.peek(path)
    ended_ns(path)
    is_partial = False
    for trace in reader.read(path, HINT, KindRules()):
        check(trace)
        is_partial |= bool(trace.meta.notes or trace.meta.is_truncated or trace.meta.events_skipped)
    return is_partial


def check(trace: RankTrace) -> None:
    """Raise `WrongError` where a table breaks what every analysis relies on."""
    for name in ("gpu_ops", "api_calls", "host_ops", "ranges", "frames", "stream_waits"):
        table = getattr(trace, name)
        starts, ends = table["start_ns"].to_numpy(), table["end_ns"].to_numpy()
        if (ends < starts).any():
            raise WrongError(f"order: {name} ends before it starts")
        if len(starts) and (np.abs(starts).max() > 9 * 10**18 or np.abs(ends).max() > 9 * 10**18):
            raise WrongError(f"range: {name} has times out of range")
        if (np.diff(starts) < 0).any():
            raise WrongError(f"sorting: {name} is not sorted by start")
    launch = trace.gpu_ops["launch"].to_numpy()
    if len(launch) and not ((launch >= -1) & (launch < len(trace.api_calls))).all():
        raise WrongError("launch: a row that is not there")
    if trace.gpu_ops["kind"].isna().any():
        raise WrongError("kind: a GPU operation of no kind")


def _kineto(rng: random.Random, folder: Path) -> Look:
    data, suffix = kineto_bytes(rng, rng.choice(seeds.kineto()))
    path = folder / f"a{suffix}"
    path.write_bytes(data)
    return lambda: kineto_read(path)


def kineto_read(path: Path) -> bool:
    """Read a Kineto file and hold it against what the standard library's JSON makes of it."""
    reader = reader_of(path)
    reader.peek(path)
    ended_ns(path)
    ops, is_partial = [], False
    for trace in reader.read(path, HINT, KindRules()):
        check(trace)
        is_partial |= bool(trace.meta.notes or trace.meta.is_truncated or trace.meta.events_skipped)
        table = trace.gpu_ops
        ops += zip(table["start_ns"].tolist(), table["end_ns"].tolist(), table["name"].tolist(), strict=True)
    expected = kineto_oracle.told(path.read_bytes())
    if expected is not None and not is_partial:
        kineto_oracle.hold_against(expected, ops)
    return is_partial


def _nsys_sqlite(rng: random.Random, folder: Path) -> Look:
    path = nsys_builders.write_sqlite(folder / "a.sqlite", seeds.nsys_tables())
    damage_database(rng, path)
    return lambda: read_trace(path)


def _nsys_parquet(rng: random.Random, folder: Path) -> Look:
    path = nsys_builders.write_parquet(folder / "a_pqtdir", seeds.nsys_tables())
    damage_folder(rng, path)
    return lambda: read_trace(path)


def _rocprof(rng: random.Random, folder: Path) -> Look:
    content = value_mutated(rng, seeds.rocprof()) if rng.random() < 0.75 else seeds.rocprof()
    data = json.dumps(content).encode(errors="surrogatepass")
    path = folder / "a_results.json"
    path.write_bytes(bytes_mutated(rng, data) if rng.random() < 0.35 else data)
    return lambda: read_trace(path)


def _archive(rng: random.Random, folder: Path) -> Look:
    """Tar and zip files whose headers are odd, beside a good rank: that one is found whatever they hold."""
    import tarfile
    import zipfile

    from traceanalyzer.discovery import discover

    text = json.dumps(seeds.kineto()[0]).encode()
    (folder / "rank7.json").write_bytes(json.dumps(seeds.kineto()[1]).encode())
    names = [
        "rank1.json",
        "a/rank2.json",
        rng.choice(ODD_TEXTS)[:600] or "x",
        "../rank3.json",
        "rank1.json/rank4.json",
        "x" * 300 + ".json",
    ]
    made = io.BytesIO()
    is_zip = rng.random() < 0.4
    if is_zip:
        with zipfile.ZipFile(made, "w") as archive:
            for name in rng.sample(names, 3):
                archive.writestr(zipfile.ZipInfo(name.encode(errors="replace").decode()), text)
    else:
        with tarfile.open(
            fileobj=made, mode="w", format=rng.choice((tarfile.PAX_FORMAT, tarfile.GNU_FORMAT))
        ) as archive:
            for name in rng.sample(names, 3):
                member = tarfile.TarInfo(name.encode(errors="replace").decode())
                member.size, member.type = (
                    len(text),
                    rng.choice((b"0", b"0", b"0", b"1", b"2", b"3", b"5", b"6", b"L", b"x", b"S")),
                )
                member.linkname = rng.choice(("", "/etc/passwd", "rank1.json"))
                key = rng.choice(("mtime", "size", "path", "GNU.sparse.map", "GNU.sparse.size", "comment"))
                value = rng.choice(("1e30", str(2**70), "nan", "-1", "", "x" * 5000, "0,1,2", "../x"))
                member.pax_headers = {key: value} if rng.random() < 0.5 else {}
                archive.addfile(member, io.BytesIO(text))
    data = made.getvalue()
    data = bytes_mutated(rng, data) if rng.random() < 0.6 else data
    if not is_zip and rng.random() < 0.5:
        data = gzip.compress(data, 1)
    (folder / ("a.zip" if is_zip else "a.tar.gz" if data[:2] == b"\x1f\x8b" else "a.tar")).write_bytes(data)

    def look() -> bool:
        found = discover(folder)
        if not any(one.path.name == "rank7.json" for run in found.runs for one in run.captures):
            raise WrongError("archive: the good rank beside it is lost")
        if (folder.parent / "rank3.json").exists():
            raise WrongError("archive: written outside of it")
        return bool(found.skipped)

    return look


def _rocpd(rng: random.Random, folder: Path) -> Look:
    path = rocprof_builders.write_database(
        folder / "a_results.db", rocprof_builders.buffers(), later=rng.random() < 0.5
    )
    damage_database(rng, path)
    return lambda: read_trace(path)


def _xplane(rng: random.Random, folder: Path) -> Look:
    from traceanalyzer.readers.xplane import messages

    path = folder / "a.xplane.pb"
    data = seeds.xplane()
    if rng.random() < 0.7:
        space = messages.space()
        space.ParseFromString(data)
        for _ in range(rng.choice((1, 2, 4))):
            _message_mutated(rng, space)
        data = space.SerializeToString()
    path.write_bytes(bytes_mutated(rng, data) if rng.random() < 0.4 else data)
    return lambda: read_trace(path)


def _message_mutated(rng: random.Random, message: Any) -> None:
    """One field of a protobuf message, at whatever depth, set to something odd."""
    while True:
        fields = message.ListFields()
        if not fields:
            return
        field, value = rng.choice(fields)
        is_message = field.message_type is not None
        if is_message and hasattr(value, "add") and len(value):
            if rng.random() < 0.15:
                del value[rng.randrange(len(value))]
                return
            message = value[rng.randrange(len(value))]
        elif is_message and not hasattr(value, "keys"):
            message = value
        else:
            _odd_field(rng, message, field, value)
            return


def _odd_field(rng: random.Random, message: Any, field: Any, value: Any) -> None:
    odd: Any = {
        int: (0, 1, -1, 2**31 - 1, 2**62, 2**63 - 1, -(2**63), 10**12), float: (0.0, -1.0, float("nan"), 1e300),
        str: ("", "x" * 999, "\u202e", "Stream #99", "nccl"), bytes: (b"", b"\xff", b"x" * 999, b"Stream #", b"all-reduce.1"), bool: (True, False),
    }.get(type(value))  # fmt: skip
    try:
        if odd is None:
            message.ClearField(field.name)
        else:
            setattr(message, field.name, rng.choice(odd))
    except (ValueError, TypeError):
        message.ClearField(field.name)


def _run_json(rng: random.Random, folder: Path) -> Look:
    from traceanalyzer.job import run_info
    from traceanalyzer.report.contents import build
    from traceanalyzer.report.writers import html

    content = value_mutated(rng, seeds.RUN_INFO)
    if rng.random() < 0.3:
        content = {**seeds.RUN_INFO, "memory": value_mutated(rng, seeds.RUN_INFO["memory"])}
    data = json.dumps(content).encode(errors="surrogatepass")
    path = folder / "run.json"
    path.write_bytes(bytes_mutated(rng, data) if rng.random() < 0.3 else data)

    def look() -> bool:
        info, notes = run_info.read_or_note(path)
        if info is not None:
            run_info.thresholds(info)
            made = build(seeds.summary(), "fuzzed", notes, run_info=info, findings=())
            failures: list[Any] = []
            html.page(made, failures=failures)
            if failures:
                raise WrongError(f"page: {failures[0].what}: {failures[0].traceback}")
        return bool(notes)

    return look


def _flight_recorder(rng: random.Random, folder: Path) -> Look:
    from traceanalyzer.doctor import examine

    dumps = seeds.flight_recorder(rng)
    for rank, content in dumps.items():
        odd = value_mutated(rng, content) if rng.random() < 0.6 else content
        is_json = rng.random() < 0.4
        data = json.dumps(odd).encode() if is_json else pickle.dumps(odd, protocol=rng.choice((2, 4)))
        data = bytes_mutated(rng, data) if rng.random() < 0.3 else data
        name = f"nccl_trace_rank_{rank}" + (".json" if is_json and rng.random() < 0.5 else "")
        (folder / name).write_bytes(gzip.compress(data) if rng.random() < 0.1 else data)
    return lambda: _examined(examine(flight_recorder=folder))


def _examined(examination: Any) -> bool:
    from traceanalyzer.report import examination as report_examination

    assert examination.verdict
    assert all(one.diagnosis for one in examination.diagnoses)
    json.loads(report_examination.text(examination))
    assert report_examination.page(examination)
    return bool(examination.notes)


def _snapshot(rng: random.Random, folder: Path) -> Look:
    from traceanalyzer.report import snapshots
    from traceanalyzer.snapshots import is_snapshot, read_snapshot
    from traceanalyzer.snapshots.comparison import sentences
    from traceanalyzer.snapshots.examination import examine_snapshot

    content = value_mutated(rng, seeds.snapshot()) if rng.random() < 0.7 else seeds.snapshot()
    data = pickle.dumps(content, protocol=rng.choice((2, 4)))
    path = folder / "snapshot.pickle"
    path.write_bytes(bytes_mutated(rng, data) if rng.random() < 0.5 else data)

    def look() -> bool:
        is_snapshot(path)
        one = examine_snapshot(read_snapshot(path))
        sentences([one])
        snapshots.text([one])
        return False

    return look


def _pickles(rng: random.Random, _folder: Path) -> Look:
    from traceanalyzer.files import safe_pickle

    content = rng.choice((seeds.snapshot(), seeds.flight_recorder(rng)[0]))
    data = bytes_mutated(rng, bytes_mutated(rng, pickle.dumps(content, protocol=rng.choice((0, 1, 2, 3, 4, 5)))))
    if rng.random() < 0.3:
        place = rng.randrange(len(data) + 1)
        data = (
            data[:place]
            + rng.choice(
                (
                    b"cos\nsystem\n",
                    b"\x8c\x02os\x8c\x06system\x93",
                    b"(tR",
                    b"R",
                    b"b",
                    b"\x81",
                    b"P1\n",
                    b"Q",
                    b"i__main__\nx\n",
                )
            )
            + data[place:]
        )

    def look() -> bool:
        _plain(safe_pickle.loads(data, "it"))
        return False

    return look


def _plain(value: Any) -> None:
    """Raise `WrongError` unless all of it is plain data."""
    waiting, seen = [value], set()
    while waiting:
        one = waiting.pop()
        if id(one) in seen:
            continue
        seen.add(id(one))
        if type(one) is dict:
            waiting += [*one, *one.values()]
        elif type(one) in (list, tuple, set, frozenset):
            waiting += one
        elif type(one) not in (str, bytes, bytearray, int, float, bool, type(None), complex):
            raise WrongError(f"code: {type(one).__name__} came out of a pickle")


def _topology(rng: random.Random, _folder: Path) -> Look:
    from traceanalyzer.doctor.examination import examine

    text = text_mutated(rng, seeds.TOPOLOGY)
    return lambda: _examined(examine(topo=("topo.txt", text)))


def _nccl_log(rng: random.Random, _folder: Path) -> Look:
    from traceanalyzer.doctor.examination import examine

    texts = [
        (f"{number}.log", text_mutated(rng, rng.choice((*seeds.logs(), seeds.RAS))))
        for number in range(rng.choice((1, 1, 2)))
    ]
    if rng.random() < 0.1:
        texts.append(("ras.json", json.dumps(value_mutated(rng, seeds.RAS_JSON), indent=2)))
    return lambda: _examined(examine(nccl_logs=texts))


def _inspector(rng: random.Random, folder: Path) -> Look:
    from traceanalyzer.doctor import examine

    records = value_mutated(rng, seeds.inspector())
    records = records if isinstance(records, list) else [records]
    data = "\n".join(json.dumps(one) for one in records).encode(errors="surrogatepass")
    (folder / "rank0.log").write_bytes(bytes_mutated(rng, data) if rng.random() < 0.4 else data)
    return lambda: _examined(examine(monitors=[folder]))


def _grammars(rng: random.Random, _folder: Path) -> Look:
    import pandas as pd

    from traceanalyzer import gate
    from traceanalyzer.analyses.base import chosen
    from traceanalyzer.analyses.replay.changes import read_change
    from traceanalyzer.loading import parse_ranks
    from traceanalyzer.selection import Selection

    table = pd.DataFrame(
        {
            "rank": [0, 1],
            "wait_ns": [1, None],
            "name": ["nccl", None],
            "is_complete": [True, False],
            "step": pd.array([1, None], "Int64"),
        }
    )
    read, texts = rng.choice((
        (gate.parse, seeds.GATES), (lambda text: chosen(table, [text]), seeds.CONDITIONS), (read_change, seeds.CHANGES),
        (parse_ranks, seeds.RANKS), (lambda text: Selection(steps=text), seeds.STEPS),
        (lambda text: KindRules.parse((text,)).kind("ncclDevKernel_AllReduce", "kernel"), seeds.RULES),
    ))  # fmt: skip
    text = rng.choice(texts)
    for _ in range(rng.choice((1, 2, 5))):
        place = rng.randrange(len(text) + 1)
        text = rng.choice((
            text[:place] + text[place + 1 :], text[:place] + rng.choice("0123456789 .,:=<>~%@-+?[]()*|\\^$éx\n\0") + text[place:],
            text[:place], text[place:] + text[:place], text_mutated(rng, text),
        ))  # fmt: skip

    text = text[:300]  # a message repeats it

    def look() -> bool:
        read(text)
        return False

    return look


def _summaries(rng: random.Random, folder: Path) -> Look:
    from tests.fuzz.stored import baseline_text, summary_text
    from traceanalyzer.diff import compare
    from traceanalyzer.diff.sources import SourceOptions, read_sides

    is_baseline = rng.random() < 0.5
    whole = _few_tables(rng, json.loads(baseline_text() if is_baseline else summary_text()))
    text = json.dumps(whole)
    (folder / "whole.json").write_text(text)
    is_damaged = rng.random() < 0.85
    odd = json.dumps(_focused(rng, whole) if is_damaged else whole).encode(errors="surrogatepass")
    (folder / "odd.json").write_bytes(odd if is_damaged and rng.random() < 0.8 else bytes_mutated(rng, odd))
    names = (
        ("baseline:odd", "baseline:whole") if is_baseline else (str(folder / "odd.json"), str(folder / "whole.json"))
    )
    names = names if rng.random() < 0.5 else names[::-1]

    def look() -> bool:
        with patch("traceanalyzer.diff.sources.BASELINES", folder):
            made = compare(read_sides(names, SourceOptions()), force=rng.random() < 0.5)
        return bool([note for side in made.sides for capture in side.captures for note in capture.notes])

    return look


USED = (
    "headline", "steps", "breakdown", "ranks", "kernels", "nccl", "operators", "micro_steps", "mfu", "collectives",
)  # fmt: skip
"""Tables from which a comparison's figures come."""

ALWAYS = ("headline", "steps", "breakdown", "ranks")


def _capture_of(content: Any) -> Any:
    return content["captures"][0] if "captures" in content else content


def _few_tables(rng: random.Random, content: Any) -> Any:
    """What a comparison cannot do without, and a few others of its tables: its time is that of its tables."""
    capture = _capture_of(content)
    others = [name for name in capture["results"] if name not in ALWAYS]
    kept = {*ALWAYS, *rng.sample([name for name in others if name in USED], 2), *rng.sample(others, 2)}
    capture["results"] = {name: rows for name, rows in capture["results"].items() if name in kept}
    return content


def _focused(rng: random.Random, content: Any) -> Any:
    """Damage in one table as likely as in what is around the tables."""
    capture = _capture_of(content)
    results = capture["results"]
    if rng.random() < 0.4:
        bare = {key: value for key, value in capture.items() if key != "results"}
        odd = value_mutated(rng, bare)
        odd = odd if isinstance(odd, dict) else {"captures": odd}
        made = odd | ({"results": results} if rng.random() < 0.95 else {})
        return {**content, "captures": [made]} if "captures" in content else made
    for _ in range(rng.choice((1, 1, 3))):
        name = rng.choice([name for name in results if name in USED] if rng.random() < 0.7 else list(results))
        results[name] = value_mutated(rng, results[name])
    return content


def _analyses(rng: random.Random, folder: Path) -> Look:
    data, suffix = kineto_bytes(rng, rng.choice(seeds.kineto()))
    path = folder / f"rank0{suffix}"
    path.write_bytes(data)
    if rng.random() < 0.4:
        other = rng.choice((value_mutated, events_mutated))(rng, rng.choice(seeds.kineto()))
        (folder / "rank1.json").write_bytes(json.dumps(other).encode(errors="surrogatepass"))
    if rng.random() < 0.2:
        (folder / "run.json").write_bytes(json.dumps(value_mutated(rng, seeds.RUN_INFO)).encode(errors="surrogatepass"))
    if rng.random() < 0.1:  # one rank's file under another rank's name
        (folder / f"rank2{suffix}").write_bytes(data)
    return lambda: analysed(folder)


def _analyses_of_tables(rng: random.Random, folder: Path) -> Look:
    if rng.random() < 0.5:
        damage_database(rng, nsys_builders.write_sqlite(folder / "a.sqlite", seeds.nsys_tables()))
    elif rng.random() < 0.6:
        _rocprof(rng, folder)
    else:
        _xplane(rng, folder)
    return lambda: analysed(folder)


def analysed(folder: Path) -> bool:
    """All analyses, rules and words of a folder, as the report's command makes them; figures that cannot be are wrong."""
    from traceanalyzer.discovery import discover
    from traceanalyzer.job import run_info
    from traceanalyzer.loading import LoadOptions
    from traceanalyzer.report.contents import build
    from traceanalyzer.scale import summarise

    found = discover(folder)
    run = found.runs[-1]
    info, notes = run_info.read_or_note(run.info)
    summary = summarise(found, run, LoadOptions(), jobs=1, **run_info.thresholds(info))
    made = build(summary, "fuzzed", notes, run_info=info)
    if made.failures:
        raise WrongError(f"part: {made.failures[0].what}: {made.failures[0].traceback}")
    impossible(made.results)
    return bool(made.skipped or made.notes or len(made.results["integrity"].table))


def impossible(results: Mapping[str, Any]) -> None:
    """Raise `WrongError` for shares above 100% or below 0 and for negative times, unless integrity speaks of them."""
    from traceanalyzer.analyses import reached_by

    doubted = reached_by(",".join(results["integrity"].table["affects"]).replace(" ", "").split(","))
    for name, result in results.items():
        if result.is_event_copy or name in doubted:
            continue
        frame = result.to_frame()
        for column in frame.columns:
            values = frame[column]
            if str(values.dtype) in ("Int64", "int64", "float64", "Float64") and column in _NEVER_NEGATIVE:
                least = values.dropna().min() if values.notna().any() else 0
                if least < 0:
                    raise WrongError(f"{name}.{column}: {least}")


_NEVER_NEGATIVE = frozenset({
    "window_ns", "compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns", "gpu_ns", "busy_ns", "duration_ns", "calls", "bytes",
    "wait_ns", "transfer_ns", "total_ns", "host_ns", "gap_ns",
})  # fmt: skip

TARGETS: Mapping[str, Target] = MappingProxyType({
    "kineto": Target("Kineto JSON and gzip, the reader alone", _kineto),
    "nsys_sqlite": Target("Nsight Systems database, the reader alone", _nsys_sqlite),
    "nsys_parquet": Target("Nsight Systems folder of Parquet, the reader alone", _nsys_parquet),
    "rocprofv3": Target("rocprofv3 JSON, the reader alone", _rocprof),
    "rocpd": Target("rocpd database, the reader alone", _rocpd),
    "xplane": Target("XLA xplane, the reader alone", _xplane),
    "archives": Target("tar and zip archives beside a good rank", _archive),
    "run_json": Target("run.json, with a page rendered", _run_json),
    "summaries": Target("stored summaries and baselines, through diff", _summaries),
    "topology": Target("topology text, through the doctor", _topology),
    "nccl_log": Target("NCCL logs and ncclras, through the doctor", _nccl_log),
    "flight_recorder": Target("flight-recorder dumps (pickle and JSON), through the doctor", _flight_recorder),
    "inspector": Target("NCCL Inspector's records, through the doctor", _inspector),
    "snapshots": Target("memory snapshots, through their examination", _snapshot),
    "pickles": Target("the restricted unpickler", _pickles),
    "grammars": Target("gates, filters, changes, ranks, steps, kinds", _grammars),
    "analyses": Target("Kineto ranks with run.json through all analyses, rules and words", _analyses),
    "analyses_of_tables": Target("nsys, rocprofv3 and xplane captures through all analyses, rules and words", _analyses_of_tables),
})  # fmt: skip
