"""Changes of stages, of links by their rate, of one blocking call; and compute that waits beside it slow."""

import pytest

from tests.simulator.analysed import analysed, saved_ns, steps_of
from tests.simulator.workloads import pipelined
from traceanalyzer.analyses.replay.changes import read_change
from traceanalyzer.errors import UsageError

MS = 1_000_000


@pytest.mark.parametrize(
    "text",
    ["links 400", "stage 2=peers", "stage even", "sync cudaStreamSynchronize@optimizer=none", "cpu 0=peers in steps 3,4",
     "comm 4,5=peers", "sync 0=none", "collective all_reduce@3/4@1,3=free"],
)  # fmt: skip
def test_what_is_written_is_what_is_read(text):
    assert str(read_change(text)) == text


@pytest.mark.parametrize("text", ["links free", "links 0", "stage 2x", "sync cudaStreamSynchronize=2x"])
def test_what_makes_no_sense_is_refused(text):
    with pytest.raises(UsageError):
        read_change(text)


@pytest.fixture(scope="module")
def pipeline():
    job = pipelined(3, 4, 3, stage_ns=(500_000, 500_000, 900_000))
    return analysed(job, "replay")[1]["replay"]


@pytest.mark.parametrize(
    ("stages", "microbatches", "chunks", "stage_ns"),
    [
        (4, 8, 1, (500_000, 500_000, 500_000, 900_000)),
        pytest.param(3, 4, 1, (600_000,) * 3, marks=pytest.mark.thorough),
        (2, 8, 2, (500_000, 700_000)),
    ],
    ids=["1f1b, a heavy stage", "1f1b, even", "interleaved"],
)
def test_an_ideal_pipeline_has_the_bubble_of_its_schedule(stages, microbatches, chunks, stage_ns):
    """(M + (S − 1) / v) forward and backward passes of the mean stage, and what is no pass: the optimizer, the copy."""
    job = pipelined(stages, microbatches, 3, stage_ns=stage_ns, chunks=chunks)
    replay = analysed(job, "replay")[1]["replay"]
    passes_ns = 3 * (sum(stage_ns) / stages) * (microbatches + (stages - 1) / chunks)
    _, after_ns = steps_of(replay, read_change("stage ideal"))
    assert passes_ns < after_ns < 1.03 * passes_ns


def test_the_first_of_each_steps_messages_go_and_no_more():
    replay = analysed(pipelined(3, 4, 3), "replay")[1]["replay"]
    texts = ("collective messages@0/2=free", "collective messages@1/2=free", "collective messages=free")
    none, half, all_of_them = (saved_ns(replay, read_change(text)) for text in texts)
    assert none == 0
    assert 0 < half < all_of_them
