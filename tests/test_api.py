"""What users of the package call: sequences of traces, filters, short prints, files."""

import pytest

import traceanalyzer as ta
from tests.samples import RUNNERS, sample


@pytest.fixture(scope="module")
def kernels():
    return ta.kernels(sample("moe"))


@pytest.fixture(scope="module")
def report():
    return ta.report(sample("moe"))


def test_traces_are_a_sequence_in_order_of_rank():
    traces = sample("moe")
    assert [trace.rank for trace in traces] == [traces[place].rank for place in range(len(traces))] == [0, 1]
    assert (traces[-1].rank, traces[1:].ranks[0].rank, traces.of_rank(1).rank) == (1, 1, 1)
    with pytest.raises(ta.UsageError, match="rank 7 is not among these; there are 0, 1"):
        traces.of_rank(7)
    assert len(repr(traces[0])) < 200


def test_the_step_without_the_profiler_reaches_every_analysis():
    place = ta.sample("pp_1f1b")
    given = ta.load(place, ranks=0, unprofiled_step=99.5)
    assert set(ta.mfu(given).to_frame()["step_ns"]) == {99_500_000}
    for wrong in ("x", 0):
        with pytest.raises(ta.UsageError, match=r"unprofiled.step"):
            ta.load(place, unprofiled_step=wrong)


def test_results_give_their_first_rows_and_those_that_pass(kernels):
    frame = kernels.to_frame()
    assert kernels.head(2).equals(frame.head(2))
    chosen = kernels.where("total_ns>1000", rank=[1], kind="comm")
    wanted = frame[(frame["rank"] == 1) & (frame["kind"] == "comm") & (frame["total_ns"] > 1000)]
    assert len(chosen) == len(wanted) > 0
    assert type(chosen) is type(kernels)
    assert chosen.to_frame().equals(wanted.reset_index(drop=True))  # shares too: they are of all rows
    assert chosen.where("total_ns>1000").to_frame().equals(chosen.to_frame())
    assert len(kernels.where("name~no such kernel")) == 0
    assert kernels.where(rank=(rank for rank in [1])).to_frame().equals(kernels.where(rank=1).to_frame())


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda kernels: kernels.where(rnk=0), "no column 'rnk'"),
        (lambda kernels: kernels.where(3), "3: write COLUMN SIGN VALUE"),
        (lambda kernels: kernels.where("total_ns>nan"), "'nan' is not a number"),
        (lambda kernels: kernels.where(rank={0: 1}), "rank takes a value or a list of them, not {0: 1}"),
        (lambda kernels: kernels.head("x"), "head takes a whole number of rows, not 'x'"),
    ],
)
def test_rows_that_make_no_sense_are_refused(kernels, call, message):
    with pytest.raises(ta.UsageError, match=message):
        call(kernels)


def test_a_report_is_saved_in_a_folder_alone(report, tmp_path):
    (tmp_path / "file").touch()
    with pytest.raises(ta.UsageError, match="file: cannot be written"):
        report.save(tmp_path / "file", ["csv"])
    assert [path.name for path in report.save(tmp_path / "new", (name for name in ["json"]))] == ["summary.json"]


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda traces: ta.breakdown(traces, idle_short_ns=3), "breakdown takes no 'idle_short_ns': idle, gaps do"),
        (lambda traces: ta.gaps(traces, idle_shrt_ns=3), "did you mean idle_short_ns"),
        (lambda traces: ta.find(traces, idle_shrt_ns=3), "did you mean idle_short_ns"),
        (lambda traces: ta.report(traces, idle_shrt_ns=3), "did you mean idle_short_ns"),
        (lambda _: ta.sample("nothing"), "available: pp_1f1b"),
        (lambda traces: ta.idle(traces, idle_short_ns="x"), "idle_short_ns takes a whole number from 0 on, not 'x'"),
        (
            lambda traces: ta.report(traces, stream_role_pct=float("nan")),
            "stream_role_pct takes a number from 0 on, not nan",
        ),
        (lambda traces: ta.ranks(traces, hosts="x"), r"hosts takes Mapping\[int, Placed\] \| None, not 'x'"),
        (lambda traces: ta.analyse(traces, ["steps"]), r"names of analyses one by one: not \['steps'\]"),
        (lambda traces: ta.analyse(traces, "stps"), "no analysis is called 'stps'; did you mean steps"),
        (lambda traces: ta.analyse(traces, "ranks")["nccl"], "nccl is not among these Results: ranks"),
        (lambda traces: ta.analyse(traces, "ranks")["rnks"], "no analysis is called 'rnks'; did you mean ranks"),
        (lambda _: ta.breakdown("folder"), "not traces in memory: 'folder'; read them first"),
        (lambda traces: ta.what_if(traces, ["cpu none"]), r"changes one by one, .*: not \['cpu none'\]"),
        (lambda traces: ta.compare(traces, 3), "compare takes folders of traces, .*: not 3"),
        (lambda traces: ta.compare(traces, [b"x"]), "compare takes folders of traces, .*: not b'x'"),
        (lambda traces: ta.export(traces, None), "export takes the path of a file: not None"),
        (lambda _: ta.load(b"folder"), "load takes a folder of traces, .*: not b'folder'"),
        (lambda _: ta.load(""), "load takes a folder of traces, .*: this text is empty"),
        (
            lambda traces: ta.load(traces, ranks="0"),
            r"load takes a folder of traces, .*: not TraceSet\('moe', ranks 0, 1\)",
        ),
        (lambda _: ta.load("folder", step_range=3), "step_range takes a text, not 3"),
        (lambda _: ta.load("folder", rank_regex=b"x"), "rank_regex takes a text, not b'x'"),
        (lambda _: ta.load(RUNNERS / "zo_offload", kind=[3]), "kind takes a text, not 3"),
        (lambda _: ta.load(RUNNERS / "zo_offload", ranks=b"0"), "write numbers and ranges such as 0,2-3"),
        (lambda traces: traces[0].table("kernels"), "no table is called 'kernels'; there are gpu_ops"),
    ],
)
def test_a_wrong_option_says_what_is_right(call, message):
    with pytest.raises(ta.UsageError, match=message):
        call(sample("moe"))


def test_thresholds_reach_a_report():
    assert ta.report(sample("moe"), bins=7).results["gpu_utilization"].table["bin"].nunique() == 7


def test_findings_print_a_line_each():
    findings = ta.find(sample("moe"))
    assert repr(findings).count("\n") == max(len(findings) - 1, 0)
    assert repr(findings[:0]) == "No findings."


def test_a_wrong_format_says_which_there_are(report):
    with pytest.raises(ta.UsageError, match="no format is called 'htm'"):
        report.save("x", ["htm"])


def test_what_is_printed_is_short(report):
    assert len(repr(report)) + len(repr(report.report)) < 2_000
    assert all(len(repr(finding)) < 500 for finding in report.findings)
    assert isinstance(report.findings[:1], ta.Findings)


def test_traces_in_memory_compare_as_their_folder_does(tmp_path):
    folder = RUNNERS / "zo_offload"  # a small one, with a run.json
    made = ta.compare(folder, sample("zo_offload"))
    assert len(repr(made)) < 1_000
    assert "No figure differs." in repr(made)
    written = made.save(tmp_path / "new", ["csv", "md"])
    assert {path.suffix for path in written} >= {".csv", ".md"}
    assert all(path.stat().st_size for path in written)
    with pytest.raises(ta.UsageError, match="htm"):
        made.save(tmp_path, ["htm"])
    one, two = made.metrics.groupby("run", sort=False)
    one, two = ({row["metric"]: row["value"] for row in own.to_dict("records")} for _, own in (one, two))
    assert one["step_ns"] == two["step_ns"]
    # what only a run.json beside the traces tells is not known in memory
    assert {name for name in one if one[name] != two[name]} <= {
        "unprofiled_step_ns",
        "tokens_per_s",
        "peak_allocated_bytes",
        "peak_reserved_bytes",
    }
