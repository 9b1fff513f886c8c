"""Random small jobs whose ranks differ, through the whole command: none may end in a bug or a part that fails.

python -m tests.fuzz_jobs 2000          # two thousand jobs, the first from seed 0
python -m tests.fuzz_jobs 1 --seed 1234 --keep job      # one of them again, its traces kept in `job`
"""

import argparse
import contextlib
import io
import json
import random
import sys
import tempfile
import time
import warnings
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.builders import document, host, kernel, write
from traceanalyzer.cli import run

BASE_NS = 1_790_000_000_000_000_000

DONE, USAGE_OR_INPUT = 0, 2

Event = dict[str, Any]

_KERNELS = (
    "ampere_sgemm_128x64_nn", "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n", "void vectorized_elementwise_kernel<4, Add>",
    "triton_poi_fused_add_0", "void softmax_warp_forward<float>", "fmha_cutlassF_bf16", "nchwToNhwcKernel",
    "void at::native::multi_tensor_apply_kernel<FusedAdam>", "ampere_fp16_s16816gemm_64x64", "", "<script>",
)  # fmt: skip
_COMM = {
    "_allreduce": "ncclDevKernel_AllReduce_Sum_bf16_RING_LL(args)",
    "_allgather_base": "ncclDevKernel_AllGather_RING_LL(args)",
    "_reduce_scatter_base": "ncclDevKernel_ReduceScatter_Sum_f32_RING_LL(args)",
    "broadcast": "ncclDevKernel_Broadcast_RING_LL(args)",
    "all_to_allv": "ncclDevKernel_SendRecv(args)",
    "send": "ncclDevKernel_SendRecv(args)",
    "recv": "ncclDevKernel_SendRecv(args)",
    "barrier": "ncclDevKernel_AllReduce_Sum_i8_RING_LL(args)",
}
_COPIES = (
    "Memcpy HtoD (Pinned -> Device)", "Memcpy DtoH (Device -> Pageable)", "Memcpy DtoD (Device -> Device)",
    "Memcpy PtoP (Device -> Device)", "Memset (Device)", "Memcpy HtoD (Pageable -> Device)",
)  # fmt: skip
_SYNCS = ("cudaStreamSynchronize", "cudaDeviceSynchronize", "cudaEventSynchronize")
_OPERATORS = ("aten::mm", "aten::addmm", "aten::add_", "aten::_scaled_dot_product_flash_attention", "aten::conv2d",
              "aten::item", "autograd::engine::evaluate_function: MmBackward0", "Optimizer.step#AdamW.step",
              "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", "aten::copy_")  # fmt: skip
_PHASES = ("forward", "backward", "optimizer", "data", "DistributedDataParallel.forward", "Optimizer.step#Adam.step")


@dataclass
class _Rank:
    """What one rank of a job is like."""

    rank: int
    kinds: tuple[str, ...]
    per_step: int
    has_launches: bool
    has_operators: bool
    has_ranges: bool
    has_arguments: bool
    has_frames: bool
    has_memory: bool
    is_zero: float
    """Share of operations without length."""
    runs_ahead: float
    """Chance that a launch's operation begins long after it, and that the next step's copy comes first."""
    offset_us: float
    loss: float


def job(seed: int, folder: Path) -> list[str]:
    """Write the job of this seed below the folder; the options to analyse it with."""
    rng = random.Random(seed)
    ranks, steps = rng.choice((1, 2, 2, 2, 3, 4)), rng.choice((0, 1, 2, 3, 3, 5))
    shared = _rank(rng, 0)
    is_even = rng.random() < 0.2
    for rank in range(ranks):
        own = _rank(rng, rank) if not is_even else _Rank(**{**vars(shared), "rank": rank})
        events = _events(random.Random(rng.random()), own, ranks, steps)
        rng.random() < 0.1 and rng.shuffle(events)
        names_rank = rng.random() < 0.85
        properties = rng.choice(([], [{"id": 0, "name": "NVIDIA H200"}], [{"id": 0, "name": "Unknown GPU"}]))
        content = document(
            events, rank=rank if names_rank else None, world_size=ranks + (rng.random() < 0.05), base_ns=BASE_NS,
            deviceProperties=properties,
        )  # fmt: skip
        write(folder / f"rank{rank}.json", content)
    if rng.random() < 0.15:
        _write_run_info(rng, folder, ranks)
    return _options(rng)


def _rank(rng: random.Random, rank: int) -> _Rank:
    kinds = [kind for kind, share in (("compute", 0.8), ("comm", 0.7), ("copy", 0.6), ("graph", 0.1))
             if rng.random() < share]  # fmt: skip
    return _Rank(
        rank, tuple(kinds) or ("compute",), rng.choice((0, 1, 3, 8, 20)), rng.random() < 0.85, rng.random() < 0.7,
        rng.random() < 0.5, rng.random() < 0.7, rng.random() < 0.2, rng.random() < 0.2, rng.choice((0, 0, 0.2, 1)),
        rng.choice((0, 0.2, 0.7)), rng.choice((0, 0, 0, 3_000, -50, 10**7)), rng.choice((0, 0, 0.1, 0.5)),
    )  # fmt: skip


def _events(rng: random.Random, what: _Rank, ranks: int, steps: int) -> list[Event]:
    events: list[Event] = []
    at, gpu, number = 1000.0 + what.offset_us, dict.fromkeys((7, 17, 21), 1000.0 + what.offset_us), 0
    for step in range(max(1, steps)):
        begin = at
        for _ in range(rng.randint(0, what.per_step)):
            number += 1
            made, at = _operation(rng, what, ranks, at, gpu, number)
            events += made
        if rng.random() < 0.3:
            length = rng.choice((0, 5, 300.5))
            events.append(host(at, length, name=rng.choice(_SYNCS), cat="cuda_runtime", correlation=90_000 + step))
            at += length
        if rng.random() < 0.2:
            at = max(at, *gpu.values())
        at += rng.choice((0, 1, 200))
        if steps:
            events.append(host(begin, max(at - begin, 0.001), name=f"ProfilerStep#{step + 3}", cat="user_annotation"))
        if rng.random() < what.runs_ahead and "copy" in what.kinds and what.has_launches:
            events += _prefetched(rng, at, begin + what.offset_us * 0, 50_000 + step)
    if what.has_memory:
        events += [_memory(1000 + at * part / 7, rng) for part in range(4)]
    return [
        event for event in events if rng.random() >= what.loss * (event["cat"] not in ("kernel", "user_annotation"))
    ]


def _operation(
    rng: random.Random, what: _Rank, ranks: int, at: float, gpu: dict[int, float], number: int
) -> tuple[list[Event], float]:
    kind = rng.choice(what.kinds)
    stream = {"compute": 7, "comm": 17, "copy": 21, "graph": 7}[kind] if rng.random() < 0.8 else 7
    duration = 0 if rng.random() < what.is_zero else rng.choice((0.001, 1, 10, 55.25, 900))
    launch, delay = rng.choice((0, 2, 5.5)), rng.choice((0, 3, 40))
    start = max(gpu[stream] * (rng.random() < 0.9), at + launch + delay)
    gpu[stream] = start + duration
    correlation = number if what.has_launches else 0
    events = [_gpu_event(rng, what, kind, ranks, start, duration, stream, correlation)]
    if what.has_launches:
        call = {"copy": "cudaMemcpyAsync", "graph": "cudaGraphLaunch"}.get(kind, "cudaLaunchKernel")
        events.append(host(at, launch, name=call, cat="cuda_runtime", correlation=number, **{"External id": number}))
    if what.has_operators:
        shapes = rng.choice(([[64, 128], [128, 64]], [[8, 16, 32], []], [], [[4]], [[2, 3], [3, 2], [], [[1]]]))
        events.append(host(at, launch + rng.choice((0, 1)), name=rng.choice(_OPERATORS), **{
            "External id": number, "Input Dims": shapes, "Input type": rng.choice((["float", "float"], [], ["c10::BFloat16"])),
            "Sequence number": rng.choice((-1, number)), "Fwd thread id": rng.choice((0, 1)),
        }))  # fmt: skip
    if what.has_ranges and rng.random() < 0.3:
        events.append(host(at - rng.choice((0, 30)), launch + rng.choice((0, 80)), name=rng.choice(_PHASES),
                           cat="user_annotation", thread=rng.choice((1, 1, 2))))  # fmt: skip
    if what.has_frames:
        events.append(host(at, launch, name=rng.choice(("nn.Module: Linear_0", "train.py(12): step")), cat="python_function",
                           **{"Python id": number, "Python parent id": None}))  # fmt: skip
    return events, at + launch + rng.choice((0, 1, 25))


def _gpu_event(
    rng: random.Random, what: _Rank, kind: str, ranks: int, start: float, duration: float, stream: int, correlation: int
) -> Event:
    if kind == "copy":
        name = rng.choice(_COPIES)
        category = "gpu_memset" if name.startswith("Memset") else "gpu_memcpy"
        return kernel(start, duration, name=name, stream=stream, correlation=correlation, cat=category,
                      bytes=rng.choice((0, 1, 1 << 20)))  # fmt: skip
    if kind == "comm":
        collective, name = rng.choice(tuple(_COMM.items()))
        return kernel(start, duration, name=name, stream=stream, correlation=correlation,
                      **_arguments(rng, what, collective, ranks))  # fmt: skip
    return kernel(start, duration, name=rng.choice(_KERNELS), stream=stream, correlation=correlation)


def _arguments(rng: random.Random, what: _Rank, collective: str, ranks: int) -> dict[str, Any]:
    if not what.has_arguments:
        return {}
    args: dict[str, Any] = {
        "Collective name": collective, "dtype": rng.choice(("BFloat16", "Float", "Strange")),
        "In msg nelems": rng.choice((0, 1024, 1 << 20)), "Out msg nelems": rng.choice((0, 1024, 1 << 20)),
        "Group size": ranks, "Process Group Name": rng.choice(("0", "0", "1")),
        "Process Group Ranks": str(list(range(ranks))), "Seq": rng.randint(0, 5),
    }  # fmt: skip
    if collective in ("send", "recv"):
        args |= {"Dst Rank" if collective == "send" else "Src Rank": rng.randrange(max(1, ranks))}
    if collective == "all_to_allv":
        args |= {"In split size": str([1] * ranks), "Out split size": rng.choice(("[]", str([2] * ranks)))}
    return {name: value for name, value in args.items() if rng.random() > 0.1}


def _prefetched(rng: random.Random, at: float, begin: float, number: int) -> list[Event]:
    """The next step's copy, which runs before this step's first operation."""
    start = rng.choice((begin, begin - 1, begin + 3, at))
    return [
        host(at + 0.5, 1, name="cudaMemcpyAsync", cat="cuda_runtime", correlation=number),
        kernel(
            start, rng.choice((0, 2, 400)), name=_COPIES[0], stream=21, correlation=number, cat="gpu_memcpy", bytes=8
        ),
    ]


def _memory(time_us: float, rng: random.Random) -> Event:
    args = {"Device Type": 1, "Device Id": 0, "Total Allocated": rng.randrange(1 << 30), "Total Reserved": 1 << 30}
    return {"ph": "i", "s": "t", "cat": "cpu_instant_event", "name": "[memory]", "pid": 100, "tid": 1, "ts": time_us,
            "args": args}  # fmt: skip


def _write_run_info(rng: random.Random, folder: Path, ranks: int) -> None:
    content = {"strategy": "fuzzed", "world_size": ranks, "step_ms": rng.choice((None, 1.5)), "tokens_per_step": 64}
    (folder / "run.json").write_text(json.dumps({key: value for key, value in content.items() if value is not None}))


def _options(rng: random.Random) -> list[str]:
    options = ["--jobs", "1", "--quiet"]
    if rng.random() < 0.3:
        options += ["--steps", rng.choice(("last", "complete", "4", "3:5", "3,5", ":4"))]
    if rng.random() < 0.1:
        options += ["--kernel-kind", rng.choice(("comm=gemm", "copy=nccl", "compute=."))]
    if rng.random() < 0.1:
        options += ["--ranks", rng.choice(("0", "0,1", "1-3"))]
    if rng.random() < 0.1:
        options += [
            "--fail-on",
            rng.choice(("idle_pct > 200 @ any rank", "exposed_comm_pct? > 200", "overlap_pct? > 200")),
        ]
    return options


def outcome(seed: int, keep: Path | None = None, command: Callable[[list[str]], int] = run) -> tuple[int, str]:
    """Exit code of the command on the job of this seed, and what it wrote to standard error."""
    with tempfile.TemporaryDirectory() as place:
        folder = keep or Path(place, "job")
        options = job(seed, folder)
        said = io.StringIO()
        with contextlib.redirect_stderr(said), warnings.catch_warnings():
            warnings.simplefilter("error")
            warnings.simplefilter("default", ResourceWarning)
            code = command([str(folder), "--output", str(Path(place, "out")), "--verbose", *options])
    return code, said.getvalue()


def is_fine(code: int, said: str) -> bool:
    """Done, a gate that could not be told, or a refusal in one sentence."""
    return code in (DONE, 1, USAGE_OR_INPUT) and "Traceback" not in said and "could not be computed" not in said


def main() -> int:
    """Run jobs; the ones that fail are printed, and make the exit code 1."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("jobs", type=int)
    parser.add_argument("--seed", type=int, default=0, help="of the first one")
    parser.add_argument("--keep", type=Path, help="folder for the traces, of the last one")
    given = parser.parse_args()
    counts: Counter[int] = Counter()
    failed, began = 0, time.monotonic()
    for seed in range(given.seed, given.seed + given.jobs):
        code, said = outcome(seed, given.keep)
        counts[code] += 1
        if not is_fine(code, said):
            failed += 1
            sys.stderr.write(f"seed {seed}: code {code}\n{said[-3000:]}\n")
    codes = ", ".join(f"{count} × code {code}" for code, count in sorted(counts.items()))
    sys.stdout.write(f"{given.jobs} jobs in {time.monotonic() - began:.0f} s: {codes}; {failed} failed\n")
    return int(failed > 0)


if __name__ == "__main__":
    sys.exit(main())
