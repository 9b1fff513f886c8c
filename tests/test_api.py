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
    with pytest.raises(ta.UsageError, match="no column 'rnk'"):
        kernels.where(rnk=0)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda traces: ta.breakdown(traces, idle_short_ns=3), "breakdown takes no 'idle_short_ns': idle, gaps do"),
        (lambda traces: ta.gaps(traces, idle_shrt_ns=3), "did you mean idle_short_ns"),
        (lambda traces: ta.find(traces, silent_pc=3), "did you mean silent_pct"),
        (lambda traces: ta.report(traces, silent_pc=3), "did you mean silent_pct"),
        (lambda _: ta.sample("nothing"), "there are pp_1f1b"),
    ],
)
def test_a_wrong_option_says_what_is_right(call, message):
    with pytest.raises(ta.UsageError, match=message):
        call(sample("moe"))


def test_thresholds_of_rules_and_of_analyses_reach_both(report):
    assert "uneven_experts" in rules(report.findings)
    report = ta.report(sample("moe"), experts_saved_pct=100.0, bins=7)
    assert "uneven_experts" not in rules(report.findings)
    assert report.results["gpu_utilization"].table["bin"].nunique() == 7


@pytest.mark.thorough
def test_thresholds_of_rules_reach_what_is_found_alone():
    assert "uneven_experts" not in rules(ta.find(sample("moe"), experts_saved_pct=100.0))


def rules(findings):
    return {one.rule for first in findings for one in (first, *first.also)}


def test_a_wrong_format_says_which_there_are(report):
    with pytest.raises(ta.UsageError, match="no format is called 'htm'"):
        report.save("x", ["htm"])


def test_what_is_printed_is_short(report):
    assert len(repr(report)) + len(repr(report.report)) < 2_000
    assert all(len(repr(finding)) < 500 for finding in report.findings)
    assert isinstance(report.findings[:1], ta.Findings)


def test_traces_in_memory_compare_as_their_folder_does():
    folder = RUNNERS / "zo_offload"  # a small one, with a run.json
    made = ta.compare(folder, sample("zo_offload"))
    assert len(repr(made)) < 1_000
    assert "No figure differs." in repr(made)
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
