"""What names of host events say."""

import pytest

from traceanalyzer.analyses.host import host_names


@pytest.mark.parametrize(
    ("name", "phase"),
    [
        ("## forward ##", "forward"),
        ("DistributedDataParallel.forward", "forward"),
        ("FSDP::pre_forward (blocks.0)", "forward"),
        ("FullyShardedDataParallel._pre_forward", "forward"),
        ("backward", "backward"),
        ("FSDP::post_backward_reduce (blocks.11)", "backward"),
        ("FullyShardedDataParallel._post_backward_hook", "backward"),
        ("Optimizer.step#AdamW.step", "optimizer"),
        ("Optimizer.zero_grad#AdamW.zero_grad", "optimizer"),
        ("optimizer_step", "optimizer"),
        ("enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "data"),
        ("## data ##", "data"),
        ("Get Batch", "data"),
        ("grad_sync", "communication"),
        ("init_process_group", "communication"),
        ("FSDP::all_gather (blocks.0)", None),
        ("nccl:all_reduce", None),
        ("ProfilerStep#3", None),
        ("DistributedDataParallel", None),
        ("update_metadata", None),
        ("## micro ##", None),
        ("forward-backward", None),
        ("forward_backward_pipelining_with_interleaving", None),
        ("DeepSpeedEngine.step", "optimizer"),
        ("DeepSpeedZeroOptimizer_Stage3.step", "optimizer"),
    ],
)
def test_phase(name, phase):
    assert host_names.phase(name) == phase


@pytest.mark.parametrize(
    ("name", "is_sync", "is_launch", "is_plain_copy"),
    [
        ("cudaStreamSynchronize", True, False, False),
        ("cudaDeviceSynchronize_v3020", True, False, False),
        ("cuCtxSynchronize", True, False, False),
        ("hipEventSynchronize", True, False, False),
        ("cudaLaunchKernel", False, True, False),
        ("cuLaunchKernelEx", False, True, False),
        ("cudaLaunchHostFunc", False, False, False),
        ("cudaMemcpyAsync", False, True, False),
        ("cudaMemcpy", False, False, True),
        ("cudaEventQuery", False, False, False),
        ("cudaStreamWaitEvent", False, False, False),
        ("hipMemcpyWithStream", False, False, True),
        ("urEnqueueKernelLaunch", False, True, False),
        ("urEnqueueUSMMemcpy", False, True, False),
        ("urEnqueueEventsWaitWithBarrier", False, False, False),
        ("urQueueFinish", True, False, False),
        ("zeEventHostSynchronize", True, False, False),
        ("zeCommandQueueSynchronize", True, False, False),
        ("zeCommandListAppendMemoryCopy", False, True, False),
    ],
)
def test_calls(name, is_sync, is_launch, is_plain_copy):
    found = (host_names.is_sync(name), host_names.is_launch(name), host_names.is_plain_copy(name))
    assert found == (is_sync, is_launch, is_plain_copy)


@pytest.mark.parametrize(
    ("name", "is_whole"),
    [
        ("forward", True),
        ("DistributedDataParallel.forward", True),
        ("## Call CompiledFxGraph fcdwcoymvvni ##", True),
        ("CompiledFunctionBackward", True),
        ("Torch-Compiled Region: 0/0", True),
        ("Optimizer.step#AdamW.step", False),
        ("checkpoint", False),
        ("aten::mm", False),
    ],
)
def test_ranges_around_all_that_a_pass_does(name, is_whole):
    assert host_names.holds_whole_pass(name) == is_whole


@pytest.mark.parametrize(
    ("name", "what"),
    [
        ("cudaDeviceSynchronize", "all"),
        ("cuStreamSynchronize", "stream"),
        ("hipEventSynchronize", "event"),
        ("zeCommandQueueSynchronize", "stream"),
        ("zeCommandListHostSynchronize", "stream"),
        ("zeEventHostSynchronize", "event"),
        ("urQueueFinish", "stream"),
        ("urEventWait", "event"),
        ("cudaStreamWaitEvent", None),
    ],
)
def test_what_synchronising_calls_wait_for(name, what):
    assert host_names.waits_for(name) == what


@pytest.mark.parametrize(
    ("name", "is_of_cpu", "is_users"),
    [
        ("gloo:all_reduce", True, False),
        ("mpi:all_reduce", True, False),
        ("hccl:all_reduce", False, False),
        ("nccl:all_reduce", False, False),
        ("mpi_setup", False, True),
    ],
)
def test_annotations_of_backends_are_no_ranges_of_the_user(name, is_of_cpu, is_users):
    assert (host_names.is_cpu_collective(name), host_names.is_user_range(name)) == (is_of_cpu, is_users)
