"""Several processes' recordings in one file are no rank's."""

import pytest

from tests.builders import document, host, kernel, write
from traceanalyzer.errors import NotATraceError
from traceanalyzer.kinds import KindRules
from traceanalyzer.readers import RankHint, kineto


def read(tmp_path, events):
    return list(kineto.read(write(tmp_path / "rank0.json", document(events)), RankHint(0, "test"), KindRules()))


def of_process(process, device=0):
    """A recording of one process, whose GPU has this number."""
    return [
        {**host(0, 9, name="aten::mm"), "pid": process},
        {**host(1, 2, name="cudaLaunchKernel", cat="cuda_runtime", correlation=1), "pid": process},
        kernel(5, 9, correlation=1, device=device),
    ]


@pytest.mark.parametrize(
    "merged",
    [
        [*of_process(100), *of_process(200, device=1)],
        [*of_process("[TP00] 100"), *of_process("[TP01] 100", device=1)],
        [{**kernel(5, 9), "pid": 1000}, {**kernel(5, 9), "pid": 2000}],
    ],
    ids=["processes", "labels", "GPU work alone"],
)
def test_merged_recordings_are_refused(tmp_path, merged):
    with pytest.raises(NotATraceError, match="several processes, merged into one file; give the files"):
        read(tmp_path, merged)


@pytest.mark.parametrize(
    ("world_size", "lost"), [(2, "rank 1 is lost"), (4, "each other rank that wrote to it is lost")]
)
def test_what_two_ranks_wrote_to_one_path_has_the_header_of_one(tmp_path, world_size, lost):
    content = document([*of_process(100), *of_process(200, device=1)], rank=0, world_size=world_size)
    path = write(tmp_path / "trace.json", content)
    with pytest.raises(NotATraceError, match=f"under the header of rank 0: {lost}; several ranks wrote to this path"):
        list(kineto.read(path, RankHint(0, "test"), KindRules()))


def test_a_process_of_two_gpus_whose_calls_bear_another_number_is_one_recording(tmp_path):
    of_container = [{**event, "pid": 1} if event["cat"] == "cpu_op" else event for event in of_process(100)]
    ranks = read(tmp_path, [*of_container, kernel(5, 9, correlation=2, device=1)])
    assert [trace.meta.device for trace in ranks] == [0, 1]
