"""Jobs that communicate by other libraries than PyTorch: DeepEP's experts, custom all-reduces, Horovod."""

from tests.simulator.faults import Faults, load, strike
from tests.simulator.program import COMM_STREAM, Group, Job, Program
from tests.simulator.workloads import job_of, layer_of, optimizer

_LAYOUT = (
    "void deep_ep::layout::get_dispatch_layout<256, 32, 8>(long const*, int*, int*, int*, bool*, int, int, int, int)"
)
_NOTIFY = "void deep_ep::intranode::notify_dispatch<4>(int const*, int*, int const*, int*, int, int, bool const*)"
_CACHED = "void deep_ep::intranode::cached_notify_combine<4>(void**, int*, int, int, int, int**, int)"
_DISPATCH = "void deep_ep::intranode::dispatch<4, 768, 8192>(int4*, float*, int*, long*, float*, int4 const*)"
_COMBINE = "void deep_ep::intranode::combine<__nv_bfloat16, 4, 768, 4096>(__nv_bfloat16*, float*, __nv_bfloat16 const*)"
_ALL_REDUCE = (
    "void vllm::cross_device_reduce_1stage<__nv_bfloat16, 4>(vllm::RankData*, vllm::RankSignals, vllm::Signal*)"
)
_SHAPES = "[[4096, 2048], [2048, 2048]]"


def deep_ep(ranks: int = 4, steps: int = 5, faults: Faults = (), *, layers: int = 3) -> Job:
    """Experts by DeepEP on a stream of its own, gradients by NCCL: nothing but the latter names a group."""
    world = Group("0", tuple(range(ranks)))

    def exchange(program: Program, notify: str, name: str, what: str, after: int) -> int:
        told = program.collective("barrier", world, 0, 4_000, stream=COMM_STREAM + 3, after=(after,), kernel=notify)
        return program.collective(what, world, 0, 90_000, stream=COMM_STREAM + 3, after=(told,), kernel=name)

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(2 * layers):
            dense = layer_of(program, "aten::linear", "dense_gemm", 250_000, 12_000, _SHAPES)
            layout = program.kernel(_LAYOUT, 5_000, after=(dense,))
            sent = exchange(program, _NOTIFY, _DISPATCH, "dispatch", layout)
            with program.range("aten::_grouped_mm", "operator", _SHAPES):
                program.host(12_000)
                done = program.kernel("void deep_gemm::sm90_bf16_m_grouped_gemm<2048>(float*)", 350_000, after=(sent,))
            if layer == 1:
                strike(program, faults, number)
                done = max(done, program.launched - 1)
            back = exchange(program, _CACHED, _COMBINE, "combine", done)
            program.kernel("void rms_norm<float>(float*)", 20_000, after=(back,))
        last = program.collective("all_reduce", world, 16_000_000, 300_000, after=(program.launched - 1,))
        optimizer(program, (last,))

    return job_of(ranks, steps, step, (world,), faults)


def decoding(ranks: int = 4, steps: int = 6, faults: Faults = (), *, layers: int = 10) -> Job:
    """Tensor parallel decoding, each layer's result reduced by vLLM's own kernel; no range marks the iterations."""
    world = Group("0", tuple(range(ranks)))

    def step(program: Program, number: int) -> None:
        load(program, faults, number)
        for layer in range(layers):
            with program.range("aten::mm", "operator", "[[8, 4096], [4096, 4096]]"):
                program.host(3_000)
                made = program.kernel("nvjet_tst_64x8_64x16_4x1_v_bz_TNT", 30_000)
            if layer == 1:
                strike(program, faults, number)
                made = max(made, program.launched - 1)
            reduced = program.collective("all_reduce", world, 0, 8_000, stream=7, after=(made,), kernel=_ALL_REDUCE)
            program.kernel(
                "void flash::flash_fwd_splitkv_kernel<Traits>(flash::Flash_fwd_params)", 25_000, after=(reduced,)
            )

    return job_of(ranks, steps, step, (world,), faults)
