"""Ranks that were analysed come back as they were made, or are made again."""

import shutil
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest

from traceanalyzer.analyses import registry
from traceanalyzer.discovery import discover
from traceanalyzer.kinds import KindRules
from traceanalyzer.loading import LoadOptions, kept_ranks, store
from traceanalyzer.scale import summarise, work
from traceanalyzer.scale.work import reduce_capture
from traceanalyzer.selection import Selection

CAPTURES = Path(__file__).parents[1] / "captures"
NAMES = ("ranks", "breakdown", "calls", "members", "step_needs", "replay", "gaps", "cuda_api")


@pytest.fixture(autouse=True)
def _small_and_new_files_count(monkeypatch):
    monkeypatch.setattr(kept_ranks, "WORTH_BYTES", 0)
    monkeypatch.setattr(store, "_UNSETTLED_NS", 0)


@pytest.fixture
def trace_file(tmp_path):
    return Path(shutil.copy(CAPTURES / "moe" / "rank0.json.gz", tmp_path / "rank0.json.gz"))


def reduced(trace_file, folder, names=NAMES, thresholds=None, **options):
    (capture,) = discover(trace_file.parent).runs[-1].captures
    asked = LoadOptions(cache=folder, **options)
    return reduce_capture(capture, asked, names, thresholds or {}, is_guarded=False)


def entries(folder):
    return sorted(folder.glob(f"*{kept_ranks.ENDING}")) if folder.exists() else []


@pytest.fixture
def never_read(monkeypatch):
    """From when it is called on, a file that is read is an error."""

    def refuse(*_args):
        raise AssertionError("read again")

    return lambda: monkeypatch.setattr("traceanalyzer.scale.work.read_capture", refuse)


def test_what_comes_back_is_what_was_made(trace_file, tmp_path, never_read):
    made = reduced(trace_file, tmp_path / "kept")
    never_read()
    back = reduced(trace_file, tmp_path / "kept")
    ((meta, tables),), ((own_meta, own)) = made.ranks, back.ranks[0]
    assert own_meta == meta
    assert list(own) == list(tables)
    pieces = [frames.pop("replay")["piece"].iloc[0] for frames in (tables, own)]
    for name, table in tables.items():
        pd.testing.assert_frame_equal(
            own[name], table, check_exact=True, check_frame_type=False, check_categorical=False
        )
    for part in ("ops", "host", "segments", "waits", "blocks"):
        pd.testing.assert_frame_equal(
            *(_plain(getattr(piece, part)) for piece in pieces), check_exact=True, check_frame_type=False
        )


def _plain(table):
    """The table with texts for categories, whose storage (Arrow's or Python's) is no part of what was made."""
    names = [name for name, dtype in table.dtypes.items() if isinstance(dtype, pd.CategoricalDtype)]
    return table.astype(dict.fromkeys(names, "object"))


def test_kept_ranks_start_no_processes(trace_file, tmp_path, never_read, monkeypatch):
    shutil.copy(CAPTURES / "moe" / "rank1.json.gz", trace_file.with_name("rank1.json.gz"))
    found, options = discover(trace_file.parent), LoadOptions(cache=tmp_path / "kept")
    made = summarise(found, found.runs[-1], options, names=("breakdown", "calls"), jobs=1)
    never_read()
    monkeypatch.setattr(work, "quiet_pool", lambda *_args, **_kwargs: pytest.fail("processes were started"))
    again = summarise(found, found.runs[-1], options, names=("breakdown", "calls"), jobs=2)
    for name, result in made.results.items():
        pd.testing.assert_frame_equal(again.results[name].to_frame(), result.to_frame(), check_exact=True)


@pytest.mark.parametrize(
    "asked",
    [
        {"thresholds": {"idle_short_ns": 1}},
        {"names": ("ranks", "breakdown")},
        {"selection": Selection(None, "last")},
        {"ranks": frozenset({0})},
        {"rules": KindRules.parse(("comm=flash",))},
    ],
    ids=lambda asked: next(iter(asked)),
)
def test_what_is_asked_otherwise_is_made_anew(asked, trace_file, tmp_path):
    reduced(trace_file, tmp_path / "kept", names=("ranks", "breakdown", "gaps"))
    found = reduced(trace_file, tmp_path / "kept", **({"names": ("ranks", "breakdown", "gaps")} | asked))
    assert len(entries(tmp_path / "kept")) == 2
    assert found.ranks[0][0].kind_rules == asked.get("rules", KindRules())


def test_other_code_and_other_analyses_find_nothing(trace_file, tmp_path, monkeypatch):
    reduced(trace_file, tmp_path / "kept", names=("breakdown",))
    changed = replace(registry.ANALYSES["breakdown"], per_rank=lambda _trace: pd.DataFrame())
    monkeypatch.setattr(kept_ranks, "ANALYSES", {**registry.ANALYSES, "breakdown": changed})
    kept_ranks._code.cache_clear()
    reduced(trace_file, tmp_path / "kept", names=("breakdown",))
    kept_ranks._code.cache_clear()
    assert len(entries(tmp_path / "kept")) == 2


@pytest.mark.parametrize("harm", [b"", b"no table", b"\x02\0\0\0\0\0\0\0[]"])
def test_a_damaged_entry_is_made_again(harm, trace_file, tmp_path):
    made = reduced(trace_file, tmp_path / "kept", names=("breakdown",))
    (entry,) = entries(tmp_path / "kept")
    (entry / "0" / "tables.columns").write_bytes(harm)
    again = reduced(trace_file, tmp_path / "kept", names=("breakdown",))
    pd.testing.assert_frame_equal(again.ranks[0][1]["breakdown"], made.ranks[0][1]["breakdown"])


@pytest.mark.parametrize("place", [40, -3, -20], ids=["a column", "the length", "what the columns are"])
def test_a_changed_byte_is_noticed(place, trace_file, tmp_path):
    made = reduced(trace_file, tmp_path / "kept", names=("breakdown",))
    (entry,) = entries(tmp_path / "kept")
    file = entry / "0" / "tables.columns"
    held = bytearray(file.read_bytes())
    held[place] ^= 1
    file.write_bytes(held)
    again = reduced(trace_file, tmp_path / "kept", names=("breakdown",))
    pd.testing.assert_frame_equal(again.ranks[0][1]["breakdown"], made.ranks[0][1]["breakdown"])


def test_a_rank_with_a_failure_is_not_kept(trace_file, tmp_path, monkeypatch):
    def fails(*_args, **_options):
        raise ZeroDivisionError

    changed = replace(registry.ANALYSES["gaps"], per_rank=fails)
    monkeypatch.setattr("traceanalyzer.analyses.engine.ANALYSES", {**registry.ANALYSES, "gaps": changed})
    (capture,) = discover(trace_file.parent).runs[-1].captures
    options = LoadOptions(cache=tmp_path / "kept")
    done = reduce_capture(capture, options, ("ranks", "gaps"), {}, is_guarded=True)
    assert done.failures
    assert not entries(tmp_path / "kept")
