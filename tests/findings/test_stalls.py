"""What all ranks do other than training."""

import pytest

from tests.findings.of_job import said
from tests.simulator import workloads as usual
from tests.simulator.faults import Fault
from tests.simulator.jobs import between_steps
from tests.simulator.program import Program
from tests.simulator.workloads import job_of, layer_of

MS = 1_000_000


def test_garbage_collection_in_every_step():
    (one,) = said(usual.ddp(ranks=2, steps=5, faults=(Fault("gc", 10 * MS, (0, 1)),)), "stalls")
    assert one.headline == "Garbage collection keeps GPUs idle up to 10.0 ms/step."
    assert one.why == "The CPU spends 10.0 ms/step in gc.collect, and launches no kernel there."
    assert one.fix == "No gc.collect() in a step; gc.disable(), and collect on all ranks every N steps."
    assert 7.5 * MS < one.saves.low_ns < 10 * MS


def test_a_checkpoint_in_two_steps():
    (one,) = said(usual.ddp(ranks=2, steps=8, faults=(Fault("save", 20 * MS, (0, 1), (3, 6)),)), "stalls")
    assert one.headline == "Checkpoint stalls the GPUs 15.0 ms in steps 3 and 6."
    assert one.why == "save (serialization.py:900) keeps all ranks longer in steps 3 and 6 than in the other steps."
    assert one.steps == (3, 6)


def test_evaluation_takes_the_gpus():
    (one,) = said(between_steps.validates(), "stalls")
    assert one.headline == "Evaluation takes the GPUs 4.79 ms in steps 3 and 6."
    assert one.what_if == "analyze-traces what-if FOLDER --compute 2.45x --in-steps 3,6"


def test_one_rank_that_collects_garbage_is_a_straggler_instead():
    assert not said(usual.ddp(ranks=2, steps=5, faults=(Fault("gc", 10 * MS, (1,)),)), "stalls")


def test_frames_that_launch_nothing_are_one_piece_of_work():
    def step(program: Program, _: int) -> None:
        with program.range("pipelines/video.py(129): preprocess", "frame"):
            for name in ("read_video", "rescale", "normalize"):
                program.host(5 * MS, f"transforms.py(9): {name}", "frame")
        for _ in range(20):
            with program.range("nn/linear.py(125): forward", "frame"):
                layer_of(program, "aten::linear", "forward_gemm", 200_000, 20_000)

    (one,) = said(job_of(1, 4, step, (), ()), "stalls")
    assert one.headline == "CPU work in preprocess (video.py:129) keeps GPUs idle up to 15.0 ms/step."


def test_operators_on_the_cpu_are_one_piece_of_work():
    def step(program: Program, _: int) -> None:
        for name in ("aten::stft", "aten::abs", "aten::log"):
            program.host(5 * MS, name)
        for _ in range(20):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 20_000)

    (one,) = said(job_of(1, 4, step, (), ()), "stalls")
    assert one.headline == "CPU work in aten::abs, aten::log and 1 more keeps GPUs idle up to 15.0 ms/step."
    assert one.fix.startswith("Move aten::abs, aten::log and 1 more to the GPU or to DataLoader workers")


def test_code_that_is_not_recorded_is_one_finding():
    def step(program: Program, _: int) -> None:
        for name in ("aten::linear", "aten::relu", "aten::norm"):
            program.host(4 * MS, "")
            layer_of(program, name, f"{name}_kernel", 400_000, 20_000)

    (one,) = said(job_of(1, 4, step, (), ()), "stalls")
    assert one.headline == "Unrecorded CPU work keeps GPUs idle up to 11.2 ms/step."
    assert "in code that is not recorded (the longest between aten::" in one.why


def test_a_capture_that_is_mostly_first_calls_allows_no_conclusion():
    def step(program: Program, number: int) -> None:
        if number == 1:
            program.host(900 * MS, "cuModuleLoadData", "call")
        for _ in range(20):
            layer_of(program, "aten::linear", "forward_gemm", 200_000, 20_000)

    caveat, *others = said(job_of(1, 4, step, (), (), has_steps=False), "stalls")
    assert caveat.headline.startswith("First-call work")
    assert caveat.severity == "high"
    assert not any(other.saves for other in others)


@pytest.mark.parametrize("has_operators", [True, False])
def test_without_steps_only_what_is_beside_gpu_work_counts(has_operators):
    def step(program: Program, _: int) -> None:
        program.host(MS, "cudaGetDevice", "call")
        program.host(500 * MS, "")
        for _ in range(3):
            if has_operators:
                layer_of(program, "aten::linear", "forward_gemm", 400_000, 20_000)
            else:
                program.kernel("forward_gemm", 400_000)
            program.host(4 * MS, "")
        program.kernel("forward_gemm", 400_000)

    unrecorded, *_ = said(job_of(1, 1, step, (), (), has_steps=False), "stalls")
    assert unrecorded.headline == "Unrecorded CPU work keeps GPUs idle up to 10.8 ms."
    assert unrecorded.why.startswith("The CPU spends 12.0 ms in code that is not recorded")
    assert unrecorded.saves.before_ns < 20 * MS
