"""The simulator does what a job does: or what is tested with it would mean nothing."""

import pytest

from tests.simulator import Capture, Group, Job, Program, capture, nsys, run, scenarios
from tests.simulator.analysed import analysed

PAIR = Group("0", (0, 1))


def job(*programs, **more):
    return Job(programs, (PAIR,), jitter=0.0, end_jitter_ns=0, **more)


def two_ranks(late_ns):
    programs = Program(0), Program(1)
    programs[1].host(late_ns)
    for program in programs:
        gemm = program.kernel("gemm", 100)
        program.collective("all_reduce", PAIR, 8, 1_000, after=(gemm,))
        program.sync()
    return job(*programs)


def test_a_collective_ends_together_and_the_early_rank_waits():
    truth = run(two_ranks(late_ns=50_000))
    early, late = truth.calls[0][0], truth.calls[1][0]
    assert early.op.end_ns == late.op.end_ns == late.op.start_ns + 1_000
    assert (early.wait_ns, late.wait_ns) == (50_000, 0)
    assert early.waits_for == late.waits_for == 1


def test_streams_run_in_order_and_events_hold_back():
    program = Program(0)
    first = program.kernel("a", 90_000)
    program.kernel("b", 10_000)
    program.kernel("c", 10_000, stream=9, after=(first,))
    a, b, c = run(job(program)).ops[0]
    assert b.start_ns == c.start_ns == a.end_ns


def test_a_sync_holds_the_host_until_the_gpu_is_done():
    program = Program(0)
    program.kernel("a", 500_000)
    program.sync()
    program.kernel("b", 10)
    a, b = run(job(program)).ops[0]
    assert b.launch_start_ns >= a.end_ns


def test_ranks_that_wait_for_each_other_are_told():
    programs = Program(0), Program(1)
    programs[0].collective("all_reduce", PAIR, 8, 10)
    with pytest.raises(RuntimeError, match="for ever"):
        run(job(*programs))


def test_a_capture_cuts_shifts_and_loses():
    truth = run(scenarios.ddp(2, steps=2))
    start = truth.calls[1][3].op.start_ns
    recorded = capture(truth, Capture(start_ns={1: start}, dropped={0: (0, -1)}, offset_ns={1: 7})).ranks
    calls = [[op for op in rank.ops if op.instruction.comm] for rank in recorded]
    assert [len(each) for each in calls] == [14, 13]
    assert min(op.start_ns for op in recorded[1].ops) >= start
    assert recorded[1].offset_ns == 7
    assert {op.number for op in recorded[1].ops} - recorded[1].launched, "queued kernels have no launch"


def test_nsys_files_hold_the_same(tmp_path):
    import sqlite3
    from contextlib import closing

    path = nsys.write(capture(run(scenarios.pipeline(2, steps=1))), tmp_path / "job.sqlite")
    with closing(sqlite3.connect(path)) as database:
        kernels = database.execute("SELECT deviceId, count(*) FROM CUPTI_ACTIVITY_KIND_KERNEL GROUP BY 1").fetchall()
        launches = database.execute(
            "SELECT count(*) FROM CUPTI_ACTIVITY_KIND_RUNTIME WHERE correlationId BETWEEN 1 AND 999999"
        ).fetchone()
    assert kernels == [(0, 17), (1, 17)]
    assert launches == (34,)


def test_kineto_files_are_read_whole():
    truth, results = analysed(scenarios.ddp(2, steps=3), "ranks", "steps", "calls")
    assert results["ranks"].to_frame()["operations"].tolist() == [len(truth.ops[0]), len(truth.ops[1])]
    assert results["steps"].to_frame()["step"].dropna().tolist() == [0, 1, 2] * 2
    assert set(results["calls"].to_frame()["group_ranks"]) == {"0,1"}
