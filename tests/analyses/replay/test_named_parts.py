"""Changes of stages, of links by their rate, of one blocking call; and compute that waits beside it slow."""

import pytest

from tests.simulator import Group, Job, Program, scenarios
from tests.simulator.analysed import analysed
from tests.simulator.workloads import job_of, layer_of, pipelined
from traceanalyzer.analyses.replay.changes import read_change
from traceanalyzer.analyses.replay.replay import gain_of
from traceanalyzer.analyses.replay.what_if import answer
from traceanalyzer.errors import UsageError

MS = 1_000_000
WORLD = Group("0", (0, 1))


def _gain(replay, *texts):
    return gain_of(replay, *map(read_change, texts)).gain_ns


@pytest.mark.parametrize(
    "text",
    ["links 400", "stage 2=peers", "stage even", "sync cudaStreamSynchronize@optimizer=none", "host 0=peers in steps 3,4",
     "comm 4,5=peers", "sync 0=none"],
)  # fmt: skip
def test_what_is_written_is_what_is_read(text):
    assert str(read_change(text)) == text


@pytest.mark.parametrize("text", ["links free", "links 0", "stage 2x", "sync cudaStreamSynchronize=2x"])
def test_what_makes_no_sense_is_refused(text):
    with pytest.raises(UsageError):
        read_change(text)


@pytest.mark.parametrize("text", ["rank 0=peers", "host fastest", "compute even", "waits none"])
def test_one_rank_has_nobody_to_be_compared_with(text):
    results = analysed(scenarios.ddp(1, steps=2), "replay")[1]
    with pytest.raises(UsageError, match="one rank only"):
        answer(results, [read_change(text)])


def test_the_table_of_one_rank_says_nothing_of_others():
    table = analysed(scenarios.ddp(1, steps=2), "what_ifs")[1]["what_ifs"].to_frame()
    assert not {"no waits for other ranks", "hosts as fast as the fastest", "compute even over ranks",
                "rank as its peers"} & {*table["change"]}  # fmt: skip
    assert {"hosts take no time", "transfers take no time"} <= {*table["change"]}


@pytest.fixture(scope="module")
def pipeline():
    job = pipelined(3, 4, 3, stage_ns=(500_000, 500_000, 900_000))
    return analysed(job, "replay")[1]["replay"]


def test_a_stage_is_its_ranks(pipeline):
    assert _gain(pipeline, "stage 2=peers") == _gain(pipeline, "rank 2=peers") > MS
    assert _gain(pipeline, "stage even") == _gain(pipeline, "rank 0-2=even")
    with pytest.raises(UsageError):
        _gain(pipeline, "stage 7=peers")


def _serial(transfer_ns: int) -> Job:
    def step(program: Program, _number: int) -> None:
        made = program.kernel("gemm", 2 * MS)
        sent = program.collective("all_reduce", WORLD, 10_000_000, transfer_ns, after=(made,))
        program.kernel("adam", MS, after=(sent,))

    return job_of(2, 4, step, (WORLD,), jitter=0)


def test_links_have_a_rate():
    replay = analysed(_serial(2 * MS), "replay")[1]["replay"]
    # 20 MB, all-reduced by two ranks at 20 GB/s: 1 ms.
    assert _gain(replay, "links 20") == pytest.approx(MS, abs=20_000)
    assert _gain(replay, "links 1") == 0


def _synchronised() -> Job:
    def step(program: Program, _number: int) -> None:
        with program.range("forward"):
            program.kernel("gemm", 2 * MS)
            program.sync("cudaStreamSynchronize")
            program.host(MS)
        with program.range("optimizer"):
            program.kernel("adam", 2 * MS)
            program.sync("cudaStreamSynchronize")
            program.host(3 * MS)

    return job_of(1, 5, step, (), jitter=0, ends_synced=False)


def test_one_call_in_one_phase_no_longer_blocks():
    replay = analysed(_synchronised(), "replay")[1]["replay"]
    every, first, second = (
        _gain(replay, f"sync {name}=none")
        for name in ("cudaStreamSynchronize", "cudaStreamSynchronize@forward", "cudaStreamSynchronize@optimizer")
    )
    assert 0 < first < every
    assert 0 < second < every
    assert _gain(replay, "sync cudaEventSynchronize=none") == 0


def _spinning() -> Job:
    """Rank 1 is late by a kernel of 3 ms; meanwhile rank 0's gradients run beside its waiting call, 1.5 times as long."""
    programs = []
    for rank in (0, 1):
        program = Program(rank)
        for number in range(5):
            with program.range(f"ProfilerStep#{number}"):
                for _ in range(4):
                    layer_of(program, "aten::mm", "gemm", 500_000, 10_000)
                if rank:
                    program.kernel("extra", 3 * MS)
                first = program.collective("all_reduce", WORLD, 1_000_000, 100_000, after=(program.launched - 1,))
                for _ in range(4):
                    made = layer_of(program, "aten::mm", "gemm", 500_000 if rank else 750_000, 10_000)
                last = program.collective("all_reduce", WORLD, 1_000_000, 100_000, after=(first, made))
                program.kernel("adam", 100_000, after=(last,))
                program.sync()
        programs.append(program)
    return Job(tuple(programs), (WORLD,), jitter=0)


def test_compute_beside_a_wait_that_goes_is_as_fast_as_alone():
    replay = analysed(_spinning(), "replay")[1]["replay"]
    gain = gain_of(replay, read_change("rank 1=peers"))
    # The extra kernel goes, and rank 0 does not become the straggler by what the wait made slower.
    assert gain.gain_ns == pytest.approx(3 * MS, rel=0.05)


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
    after_ns = replay.engine.gains([(read_change("stage ideal"),)])[0].after_ns
    assert passes_ns < after_ns < 1.03 * passes_ns


def test_stages_become_ideal_together():
    with pytest.raises(UsageError):
        read_change("stage 0=ideal")
