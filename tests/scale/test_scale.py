"""What the parent process keeps of many ranks."""

import io
import re
import subprocess
import sys
import tempfile
import time
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from rich.console import Console

from tests.once import results
from tests.simulator import Capture, capture, kineto, run, scenarios
from traceanalyzer import execution as deciding
from traceanalyzer.analyses import ANALYSES, engine
from traceanalyzer.analyses.breakdown import Steps
from traceanalyzer.analyses.timeline import MOST_RANKS
from traceanalyzer.discovery import discover
from traceanalyzer.errors import PartFailedWarning
from traceanalyzer.execution import quiet_pool
from traceanalyzer.findings import results_of_kinds
from traceanalyzer.loading import LoadOptions
from traceanalyzer.report.contents import build
from traceanalyzer.report.timeline import timeline_data
from traceanalyzer.report.writers import text as terminal
from traceanalyzer.scale import Summary, summarise, with_timelines
from traceanalyzer.scale.work import Done, Limits, kept_of, sizes_of, thinned

NAMES = ("ranks", "breakdown", "headline", "steps", "timeline", "host_events")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Six ranks, of which the fourth is late: it waits least."""
    place = tmp_path_factory.mktemp("six")
    kineto.write(capture(run(scenarios.ddp(6, steps=2, slow_compute_ns={3: 500_000})), Capture()), place)
    return place


def of(folder, **more):
    found = discover(folder)
    return summarise(found, found.runs[-1], LoadOptions(), names=(*NAMES, "clocks"), jobs=1, **more).results


def test_a_timeline_keeps_whole_ranks_that_are_unlike_the_others(folder):
    """Rank 3 makes the others wait, and so loses least itself: it stays, one of those in the middle goes."""
    whole = of(folder)["timeline"].table
    counts = whole.groupby("rank").size()
    results = of(folder, most_operations=int(counts.sum()) - 1)
    kept = results["timeline"].table
    assert 3 in set(kept["rank"])
    assert kept["rank"].nunique() == 5
    assert kept.groupby("rank").size().to_dict() == counts[counts.index.isin(kept["rank"])].to_dict()
    assert len(results["breakdown"]) == 6, "every other figure is of all ranks"
    data = timeline_data(results)
    assert (len(data.ranks), len(data.left_out)) == (5, 1)


def test_what_findings_name_is_read_again_for_the_timeline(folder):
    found = discover(folder)
    options = LoadOptions()
    summary = summarise(found, found.runs[-1], options, names=NAMES, jobs=1, most_operations=1)
    (alone,) = summary.results["timeline"].table["rank"].unique()
    more = with_timelines(summary, found.runs[-1], options, [1, 3], jobs=1)
    whole = of(folder)["timeline"].to_frame()
    kept = more.results["timeline"].to_frame()
    assert set(kept["rank"]) == {1, 3, alone}
    columns = ["rank", "start_ns", "end_ns", "name"]
    expected = whole[whole["rank"].isin({1, 3, alone})]
    assert kept[columns].astype("str").to_numpy().tolist() == expected[columns].astype("str").to_numpy().tolist()
    hosts = of(folder)["host_events"].to_frame()
    of_drawn = hosts[hosts["rank"].isin({1, 3, alone})].reset_index(drop=True)
    assert len(of_drawn)
    pd.testing.assert_frame_equal(more.results["host_events"].to_frame().reset_index(drop=True), of_drawn)


def _broken(_parts) -> Steps:
    raise ValueError


def test_first_results_come_before_the_others_and_nothing_is_made_or_fails_twice(folder, monkeypatch):
    found = discover(folder)
    monkeypatch.setattr(engine, "ANALYSES", {**ANALYSES, "steps": replace(ANALYSES["steps"], made_by=_broken)})
    how = {"names": NAMES, "jobs": 1, "is_guarded": True, "first": lambda: {"ranks", "steps"}}
    with pytest.warns(PartFailedWarning) as told:
        begun = summarise(found, found.runs[-1], LoadOptions(), **how)
    whole = begun.rest(begun.failures)  # a warning here is an error
    assert [*begun.results] == ["ranks", "steps"]
    assert [*whole.results] == [*NAMES]
    assert whole.results["ranks"] is begun.results["ranks"]
    assert len(whole.results["timeline"])
    assert not len(whole.results["headline"]), "it needs what failed before"
    assert ([one.name for one in whole.failures], len(told)) == (["steps"], 1)


@pytest.mark.parametrize("name", ["ddp", pytest.param("simple_ddp", marks=pytest.mark.thorough)])
def test_what_is_shown_first_is_of_the_first_results(name):
    held = results(name, (*{*results_of_kinds(), *terminal.SHOWN},))
    report = build(Summary(held, (), (), {}), name)
    assert not report.failures
    terminal.show(report, Console(file=io.StringIO()))


def test_what_the_terminal_and_its_words_look_at_is_made_first():
    package = Path(terminal.__file__).parents[2]
    places = [Path(terminal.__file__), package / "cli" / "report.py", package / "report" / "words.py"]
    asked = {name for place in places for name in re.findall(r'results\["(\w+)"\]', place.read_text("utf-8"))}
    assert len(asked) > 5
    of_top = {"kernels_over_ranks", "operators_over_ranks"}  # only with `--top`
    assert asked - of_top <= {*results_of_kinds(), *terminal.SHOWN}


def test_a_run_that_is_too_large_is_not_replayed_and_keeps_no_graphs(tmp_path):
    kineto.write(capture(run(scenarios.ddp(2, steps=2))), tmp_path)
    found = discover(tmp_path)
    for most, has_graph in ((10, False), (10_000, True)):
        summary = summarise(found, found.runs[-1], LoadOptions(), names=("replay", "bottleneck"), most_replayed=most)
        assert (summary.results["replay"].engine is not None) == has_graph
        assert bool(len(summary.results["bottleneck"])) == has_graph


@pytest.mark.parametrize(
    ("files", "size_mb", "suffix", "cores", "processes"),
    [
        (8, 0.8, ".json.gz", 2, 2), (8, 0.8, ".json.gz", 64, 8), (8, 0.8, ".json.gz", 1, 1), (2, 0.8, ".json.gz", 64, 1),
        (2, 20, ".json.gz", 64, 2), (2, 20, ".json", 64, 1), (1, 500, ".json.gz", 64, 1), (4, 0.0, ".json", 64, 1),
    ],
)  # fmt: skip
def test_processes_are_started_where_they_save_more_than_their_start(
    files, size_mb, suffix, cores, processes, tmp_path, monkeypatch
):
    monkeypatch.setattr(deciding, "_cores", lambda: cores)
    paths = [tmp_path / f"{number}{suffix}" for number in range(files)]
    for path in paths:
        with path.open("wb") as file:
            file.truncate(round(size_mb * 1e6))
    assert deciding.processes_for(paths, None) == processes
    assert deciding.processes_for(paths, 3) == min(3, files)


def test_ranks_that_were_not_asked_for_are_left_out_and_not_missing(folder):
    found = discover(folder)
    summary = summarise(found, found.runs[-1], LoadOptions(ranks=frozenset({1, 2})), names=("integrity",), jobs=1)
    checks = {row["check"]: row for row in summary.results["integrity"].rows()}
    assert "missing_ranks" not in checks
    assert "2 of the job's 6 ranks are analyzed (--ranks)." in checks["ranks_left_out"]["sentence"]
    assert "missing" not in " ".join(summary.notes)


def done_of(sizes):
    """A file a rank, as the analyses leave it: time lost, operations drawn, operations of its graph."""
    for lost_ns, drawn, replayed in sizes:
        tables = {
            "breakdown": pd.DataFrame({"idle_ns": [lost_ns], "exposed_comm_ns": [0]}),
            "timeline": pd.DataFrame({"start_ns": range(drawn)}),
            "host_events": pd.DataFrame({"start_ns": range(3)}),
            "replay": pd.DataFrame({"operations": [replayed], "piece": [object()]}),
        }
        yield Done(None, ((None, tables),), (), ())


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.tuples(st.integers(0, 6), st.integers(0, 5), st.integers(0, 5)), min_size=1, max_size=14),
    st.integers(0, 24),
    st.integers(0, 30),
)
def test_what_is_let_go_as_files_come_is_what_all_files_decide(sizes, drawn, replayed):
    limits = Limits(drawn, replayed)
    files = list(done_of(sizes))
    kept = kept_of([size for number, done in enumerate(files) for size in sizes_of(done, number)], limits)
    left = [done.ranks[0][1] for done in thinned(iter(files), limits)]
    assert [bool(len(tables["timeline"])) for tables in left] == [
        (number, 0) in kept.drawn for number in range(len(left))
    ]
    assert all(len(tables["host_events"]) == 3 * ((number, 0) in kept.hosts) for number, tables in enumerate(left))
    assert kept.hosts <= kept.drawn
    assert len(kept.hosts) == min(len(kept.drawn), MOST_RANKS)
    assert {tables["replay"]["piece"].iloc[0] is not None for tables in left} == {kept.has_graphs}
    total = sum(size[1] for number, size in enumerate(sizes) if (number, 0) in kept.drawn)
    assert total <= drawn or len(kept.drawn) == 1


def test_an_error_waits_for_no_process_and_what_they_unpacked_goes(tmp_path, monkeypatch):
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    running = []

    def interrupted():
        with quiet_pool(1) as pool:
            assert pool.submit(tempfile.mkdtemp).result().startswith(str(tmp_path))
            pool.submit(time.sleep, 1000)
            running.extend(pool._executor._processes.values())
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert [process.is_alive() for process in running] == [False]
    assert not list(tmp_path.iterdir())


KILLED = """
import os, signal, time
from concurrent.futures.process import BrokenProcessPool
from traceanalyzer.execution import quiet_pool

with quiet_pool(2) as pool:
    own = [pool.submit(os.getpid).result()]
    works = [pool.submit(time.sleep, 600) for _ in range(2)]
    os.kill(own[0], signal.SIGKILL)
    try:
        works[0].result()
    except BrokenProcessPool:
        print("broken")
print("over")
"""


def test_a_pool_of_which_a_process_is_killed_ends():
    done = subprocess.run([sys.executable, "-c", KILLED], capture_output=True, text=True, timeout=300, check=False)
    assert done.stdout.split() == ["broken", "over"], done.stderr
