"""Which ranges are taken for steps when nobody names any."""

import pytest

from tests.host_builders import host_trace

THREE = [(0, 90), (100, 190), (200, 290)]


def steps(ranges, *, launched=(10, 110, 210)):
    """Names of the steps found where kernels are launched at these times."""
    calls = [("cudaLaunchKernel", time, time + 1) for time in launched]
    ops = [("gemm", time + 2, time + 7, number) for number, time in enumerate(launched, 1)]
    return host_trace(ops, calls, ranges=ranges).steps


def repeated(name, thread=1):
    return [(name, start, end, thread) for start, end in THREE]


@pytest.mark.parametrize(
    ("ranges", "expected"),
    [
        ([("ProfilerStep*", 0, 90), ("ProfilerStep*", 100, 190)], ["ProfilerStep*"] * 2),
        ([("ProfilerStep#7", 0, 90), *repeated("iteration")], ["ProfilerStep#7"]),
        ([("execute_context_1(8)_generation_0(0)", 0, 90), *repeated("loop")], ["execute_context_1(8)_generation_0(0)"]),
        ([("execute_new_2_cached_0", 0, 90), *repeated("loop")], ["execute_new_2_cached_0"]),
        ([("step[EXTEND bs=1 toks=7]", 0, 90), ("step[DECODE bs=1]", 100, 190)],
         ["step[EXTEND bs=1 toks=7]", "step[DECODE bs=1]"]),
        ([("forward_extend", 0, 90), ("forward_decode", 100, 190), ("attention", 110, 120)],
         ["forward_extend", "forward_decode"]),
        # of all work only a third is launched in it
        (repeated("work")[:1] + repeated("other")[1:], []),
        (repeated("generation"), ["generation"] * 3),
        (repeated("generation")[:2], []),
        (repeated("## Call CompiledFxGraph abc ##"), []),
        (repeated("micro_batch"), []),
        (repeated("## step ##"), ["## step ##"] * 3),
        ([("Step 0", 0, 90), ("Step 1", 100, 190)], ["Step 0", "Step 1"]),
        ([("iteration=5/100", 0, 90), ("iteration=6/100", 100, 190)], ["iteration=5/100", "iteration=6/100"]),
        ([("global_step_12", 0, 90)], ["global_step_12"]),
        # a part of a step that is called step: the optimizer's, launching nothing here
        ([("step", 91, 95), ("step", 191, 195), ("step", 291, 295)], []),
        ([("Optimizer.step#AdamW.step", 0, 90), ("step_3_forward", 100, 190)], []),
        # numbers apart, one name; as Lightning writes, within its epoch
        ([(f"batch {n}", start, end) for n, (start, end) in enumerate(THREE)], ["batch 0", "batch 1", "batch 2"]),
        ([("[pl][profile]run_training_epoch", 0, 300), *repeated("[pl][profile]run_training_batch"),
          ("[pl][profile][Strategy]DDPStrategy.training_step", 5, 50)], ["[pl][profile]run_training_batch"] * 3),
        # what holds repeated ranges and says neither may be the step itself
        ([("my_step_of_four", 0, 300), *repeated("forward_backward")], []),
        # steps that overlap on one thread, and one inside another; on several threads they are each one's own
        ([("step 1", 0, 101), ("step 2", 100, 210), ("step 2.1", 110, 120), ("step 3", 200, 290)],
         ["step 1", "step 2", "step 3"]),
        ([("step 1", 0, 100, 1), ("step 1", 50, 150, 2), ("step 2", 160, 260, 1)], ["step 1", "step 2"]),
        # what lies within a step of another thread, or begins in one, hides none that follows
        ([("step 1", 0, 100, 1), ("step 7", 50, 150, 2), ("step 2", 110, 200, 1), ("step 3", 210, 290, 1)],
         ["step 1", "step 2", "step 3"]),
        ([("step 1", 0, 101, 1), ("step 7", 50, 60, 2), ("step 2", 100, 200, 1)], ["step 1", "step 2"]),
        # inside another range it is no step
        ([("request", 0, 300), *repeated("generation")], []),
        # that of another thread launches as much: the same times; the first one counts
        ([*repeated("generation"), *((f"layer_{i}", start, end, 2) for i, (start, end) in enumerate(THREE))],
         ["generation"] * 3),
    ],
)  # fmt: skip
def test_names_of_steps(ranges, expected):
    assert steps(ranges)["name"].tolist() == expected


OTHERS = "{} of {} ranges that mark steps begin within other steps and are left out, such as {}. --step-range "


@pytest.mark.parametrize(
    ("ranges", "said"),
    [
        ([("ProfilerStep#0", 0, 300), ("ProfilerStep#1", 0, 90), ("ProfilerStep#2", 100, 190)],
         OTHERS.format(2, 3, "ProfilerStep#1 in ProfilerStep#0")),
        ([("step 1", 0, 100, 1), ("step 7", 50, 150, 2), ("step 2", 110, 200, 1)],
         OTHERS.format(1, 3, "step 7 in step 1")),
        # a part here and there, the same steps marked twice
        ([("step 1", 0, 100), ("step 1.1", 50, 60), ("step 2", 110, 200)], ""),
        ([("ProfilerStep#1", 0, 100), ("ProfilerStep#1", 1, 99, 2)], ""),
    ],
    ids=["one around all", "two threads", "parts", "marked twice"],
)  # fmt: skip
def test_ranges_that_mark_steps_and_are_none_are_said(ranges, said):
    found = host_trace([("gemm", 12, 17, 1)], [("cudaLaunchKernel", 10, 11)], ranges=ranges)
    assert [note[: len(said)] for note in found.meta.notes] == [said] * bool(said)


def test_a_repeated_range_needs_four_fifths_of_the_launched_gpu_time():
    inside, outside = (10, 110, 210), (95,)
    assert len(steps(repeated("loop"), launched=inside + outside)) == 0
    assert len(steps(repeated("loop"), launched=(10, 20, 110, 120, 210, *outside))) == 3


def test_waiting_in_communication_makes_no_phase_a_step():
    # The collective launched in `backward` runs for long, as it waits for another rank.
    calls = [("cudaLaunchKernel", time, time + 1) for start, _ in THREE for time in (start - 5, start + 10, start + 20)]
    lengths = [5, 5, 60] * 3
    names = ["forward_gemm", "backward_gemm", "ncclDevKernel_AllReduce_Sum_f32_RING_LL"] * 3
    ops = [
        (name, time + 2, time + 2 + length, number)
        for number, (name, (_, time, _), length) in enumerate(zip(names, calls, lengths, strict=True), 1)
    ]
    assert host_trace(ops, calls, ranges=repeated("backward")).steps.empty
