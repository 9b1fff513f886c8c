"""What advice calls a vendor's and a framework's tools."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

import pandas as pd
from msgspec import Struct

from traceanalyzer.analyses import Result, Results
from traceanalyzer.analyses.phases.micro_steps import Iterations
from traceanalyzer.findings.finding import Finding
from traceanalyzer.kinds import EXPERTS
from traceanalyzer.meaning.vocabulary import first_upper

# What the tools and settings that advice names for NVIDIA's GPUs are called on those of AMD and Intel.


BY_MAKER = ("ranks", "cuda_api")
"""Results that tell who made the GPUs."""

_ALLOCATOR = "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"

_AMD = {
    "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv": "amd-smi metric --pcie",
    "nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE": "amd-smi metric --clock --power --temperature",
    "nvidia-smi -q -d CLOCK,ECC,ROW_REMAPPER,PERFORMANCE": "amd-smi metric --clock --ecc, amd-smi bad-pages",
    "nvidia-smi, nvidia-smi pmon": "amd-smi process",
    "nvidia-smi topo -m": "rocm-smi --showtopo",
    "nvidia-smi nvlink -s": "rocm-smi --shownodesbw",
    "nvidia-smi nvlink -e": "rocm-smi --showxgmierr",
    "MPS or MIG": "partitions",
    "NVLinks": "xGMI links",
    "NVLink": "xGMI",
    "NCCL's": "RCCL's",
    "NCCL": "RCCL",
    "CUDA_VISIBLE_DEVICES": "HIP_VISIBLE_DEVICES",
    "CUDA_LAUNCH_BLOCKING": "HIP_LAUNCH_BLOCKING",
    _ALLOCATOR: "PYTORCH_HIP_ALLOC_CONF=expandable_segments:True (where the version has it)",
    "CUDA graph": "HIP graph",
    "cudaFree": "hipFree",
    "cudaMallocAsync": "hipMallocAsync",
    "cudaSetDevice": "hipSetDevice",
    ", or sample the CPU (nsys --sample=process-tree)": "",
    "multiprocessors": "compute units",
    "cuBLAS": "hipBLASLt",
    "; nsys --python-sampling=true": "",
    ", an NVTX range": ", a roctx range",
    "(an NVTX range)": "(a roctx range)",
    "NVTX ranges": "roctx ranges",
    "nsys profile --cuda-graph-trace=node": "rocprofv3 --hip-trace --kernel-trace",
    "let Nsight Systems record NCCL's payloads, or": "let",
    "let Nsight Systems record": "let",
    ", or with Nsight Systems": "",
    "DCGM, Nsight": "rocprof",
}

_INTEL = {
    "nvidia-smi --query-gpu=pcie.link.gen.current,pcie.link.width.current --format=csv": "xpu-smi discovery -d <gpu>",
    "nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE": "xpu-smi stats -d <gpu>, xpu-smi health -l",
    "nvidia-smi -q -d CLOCK,ECC,ROW_REMAPPER,PERFORMANCE": "xpu-smi stats -d <gpu>, xpu-smi health -l",
    "nvidia-smi, nvidia-smi pmon": "xpu-smi ps",
    "nvidia-smi topo -m": "xpu-smi topology -m",
    "nvidia-smi nvlink -s": "xpu-smi stats -d <gpu>",
    "nvidia-smi nvlink -e": "xpu-smi health -l",
    "NCCL_DEBUG=INFO; analyze-traces doctor reads both": "CCL_LOG_LEVEL=info",
    "NCCL_DEBUG=INFO": "CCL_LOG_LEVEL=info",
    "NCCL_P2P_DISABLE": "CCL_TOPO_P2P_ACCESS=0",
    "NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS and the process group's own settings": "its settings of threads and channels",
    "NCCL_MAX_CTAS, ": "",
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1 and the flight recorder say": "TORCH_DISTRIBUTED_DEBUG=DETAIL says",
    " by MPS or MIG, not in time slices": " by parts of it, not in time slices",
    "NVLinks": "Xe Links",
    "NVLink": "Xe Link",
    "NCCL": "oneCCL",
    "CUDA_VISIBLE_DEVICES": "ZE_AFFINITY_MASK",
    "CUDA_LAUNCH_BLOCKING": "UR_L0_SERIALIZE",
    _ALLOCATOR: "PYTORCH_ALLOC_CONF=expandable_segments:True (where the version has it)",
    ' (of what torch.compile makes: mode="reduce-overhead")': " (torch.xpu.XPUGraph, where the version has it)",
    ' (of those that torch.compile makes: mode="reduce-overhead")': " (torch.xpu.XPUGraph, where the version has it)",
    "CUDA graph": "SYCL graph",
    "cudaFree": "freeing it",
    "multiprocessors": "Xe cores",
    "cuBLAS": "oneMKL",
    "torch.cuda.": "torch.xpu.",
    "ProfilerActivity.CUDA": "ProfilerActivity.XPU",
    "; nsys --python-sampling=true": "",
    ", an NVTX range": "",
    ", NVTX ranges": "",
    "with nsys profile --cuda-graph-trace=node": "without graphs",
    "let Nsight Systems record NCCL's payloads, or": "let",
    ", or with Nsight Systems": "",
    "DCGM, Nsight": "unitrace, VTune",
}

_BY_CALLS = {"AMD": r"^hip[A-Z]", "Intel": r"^(?:ur|ze)[A-Z]"}
"""How the calls by which hosts drive the GPUs begin."""

_BY_MODEL = {"AMD": r"^AMD\b|\bMI\d{2,3}|\bRadeon\b", "Intel": r"^Intel\b"}

WORDS = {"AMD": _AMD, "Intel": _INTEL}


def maker_of(results: Results) -> str | None:
    """`AMD` or `Intel`, where all GPUs are theirs by their models, or by the calls of the hosts; `None` of others."""
    models = _texts(results, "ranks", "device_name")
    by_model = next((maker for maker, own in _BY_MODEL.items() if len(models) and models.str.contains(own).all()), None)
    if by_model or _texts(results, "ranks", "format").isin(("rocprofv3", "rocpd")).any():
        return by_model or "AMD"
    calls = _texts(results, "cuda_api", "name")
    return next((maker for maker, own in _BY_CALLS.items() if calls.str.contains(own).any()), None)


def in_words_of(maker: str | None, finding: Finding) -> Finding:
    """The finding with its advice, and that of its signs, in the words of the GPUs' maker; its title names what ran."""
    return finding if maker is None else in_words(WORDS[maker], finding)


def in_words(words: Mapping[str, str], finding: Finding) -> Finding:
    """The finding with some words of its advice, and of that of its signs, replaced by others."""
    return replace(
        finding,
        recommendation=worded(words, finding.recommendation),
        caveat=worded(words, finding.caveat),
        also=tuple(in_words(words, sign) for sign in finding.also),
    )


def worded(words: Mapping[str, str], text: str | None) -> str | None:
    """The text with such words replaced."""
    return _pattern(tuple(words)).sub(lambda found: words[found[0]], text) if text else text


@cache
def _pattern(words: tuple[str, ...]) -> re.Pattern[str]:
    """The longest of them that fits; parts of longer names, as of a variable, are left."""
    longest = sorted(words, key=len, reverse=True)
    return re.compile("|".join(rf"(?<![A-Za-z_]){re.escape(word)}(?![A-Z_])" if word[0].isalpha() else re.escape(word)
                               for word in longest))  # fmt: skip


def _texts(results: Results, name: str, column: str) -> pd.Series:
    """The distinct ones; none where the Result is not there."""
    result = results.get(name)
    table = pd.DataFrame() if result is None else result.table
    return pd.Series(table[column].dropna().astype("object").unique() if column in table else [], dtype="str")


# What advice says to programs of no framework that learns, as those of C++ and Fortran that Nsight Systems records.


BY_PROGRAM = ("ranks", "kernels", "operators")
"""Results that tell what a program is."""

_WITHOUT_FRAMEWORK = ("nsys", "rocprofv3", "rocpd")
"""Formats whose profilers record any program; others are a framework's own."""

_FRAMEWORK = re.compile(
    r"\b(?:at|c10d?|torch|pytorch\w*|caffe2|vllm|sglang|tensorrt_llm|transformer_engine|xla|stream_executor|tensorflow)::"
    r"|^triton_(?:poi|red|per|tem|for|spl|mix)_|\bpytorch_flash|flash_(?:fwd|bwd)|multi_tensor_apply|^nvjet_|^loop_\w*fusion"
)
"""Kernels of frameworks that learn: a job of theirs runs some of these."""

_OPERATOR = re.compile(r"^\w[^(]*::")
"""`aten::mm`: of what runs outside any operator the table has a row, too."""

_KEEP = "Keep memory from step to step, or take it from a pool (cudaMallocAsync)."

PLAIN = {
    " (.item(), .cpu(), print, NaN checks)": "",
    "use pinned memory and non_blocking copies": "copy to and from pinned memory asynchronously",
    ": .item(), .cpu(), printing tensors, blocking copies": ": synchronous copies, and calls that wait",
    "A call of torch.cuda.empty_cache() in the step gives back what the next one needs: leave it out. Else the "
    "allocator finds no block that fits, for memory is nearly full or in fragments: "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True lets freed memory serve requests of other sizes; free what is "
    "not needed, or take a smaller micro-batch.": _KEEP,
    ", or set PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True": ", or take memory from a pool (cudaMallocAsync)",
    "Without expandable segments cudaFree waits": "cudaFree waits",
    "no torch.cuda.empty_cache() in the step, sizes that repeat, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True "
    "where memory is nearly full": "sizes that repeat, or a pool (cudaMallocAsync)",
    " (torch.autocast)": "",
    " (torch.autocast, torch.amp.GradScaler)": "",
    ': torch.set_float32_matmul_precision("high")': "",
    " (torch.compile)": "",
    "put torch.profiler.record_function ranges around saving, logging, evaluation and data handling, or record "
    "with_stack=True": "put NVTX ranges around saving, logging and input",
    "(torch.profiler.record_function, an NVTX range) or record with Python's frames (with_stack=True; nsys "
    "--python-sampling=true)": "(an NVTX range), or sample the CPU (nsys --sample=process-tree)",
    "Python of its own leaves no mark": "code without ranges leaves no mark",
    "move Python work and logging out of the step": "move other work out of the step",
    "torch.cuda.set_device(LOCAL_RANK)": "cudaSetDevice",
    "more DataLoader workers, persistent workers, prefetch_factor, pinned memory with non_blocking copies; move "
    "decoding and augmentation off the training process": "more threads that read, pinned memory, asynchronous copies",
    ", or the PyTorch profiler the calls' arguments, so": ", so",
    "the process group's own settings": "the communicator's own settings",
    "TORCH_NCCL_DUMP_ON_TIMEOUT=1 and the flight recorder say which collective": "NCCL's log (NCCL_DEBUG=INFO, "
    "NCCL_DEBUG_SUBSYS=COLL) says which collective",
}
"""What advice says to programs of PyTorch, and to those of none."""


def is_plain(ranks: Result | None, kernels: Result | None, operators: Result | None = None) -> bool:
    """Whether profilers of any program recorded all ranks, and neither kernels nor operators are a framework's."""
    if ranks is None or kernels is None or not len(ranks) or not len(kernels):
        return False
    if not ranks.table["format"].isin(_WITHOUT_FRAMEWORK).all() or _programs_any(ranks, "versions", "compiler XLA"):
        return False
    return not _programs_any(kernels, "name", _FRAMEWORK) and not _programs_any(operators, "operator", _OPERATOR)


def is_of_plain_program(results: Results) -> bool:
    """The same of all Results."""
    return is_plain(*(results.get(name) for name in BY_PROGRAM))


def _programs_any(result: Result | None, column: str, pattern: str | re.Pattern[str]) -> bool:
    if result is None or column not in result.table:
        return False
    names = pd.Series(result.table[column].dropna().astype("object").unique(), dtype="str")
    return bool(names.str.contains(pattern).any())


# What of PyTorch's and the engines' tools a job's kernels show: what is in use already is not advised.


class InUse(Struct, frozen=True):
    """What of PyTorch's tools the job's kernels show; a name that nobody knows shows nothing."""

    compiles: bool = False
    updates_by_parts: bool = False
    """An optimizer whose every operation is a kernel (foreach), none in which all of them are one (fused)."""
    updates_singly: bool = False
    """An optimizer that runs kernels of its own for each parameter (neither foreach nor fused)."""
    reduces_small: bool = False
    """All-reduces that are made for small arrays."""
    reduces_fused: bool = False
    """All-reduces with what follows them in one kernel."""
    replays: bool = False
    """CUDA graphs, by which most operations are launched."""

    @classmethod
    def of(cls, kernels: Result | None, phases: Result | None = None, launches: Result | None = None) -> "InUse":
        """By the names of Inductor's kernels, of those that update parameters, and of those that reduce them.

        What Adam does to one parameter has a name of its own; what others do, as stochastic gradient descent, adds and
        multiplies as anything does: that is told by how many operations the optimizer has.
        """
        if kernels is None or not len(kernels):
            return cls(replays=_by_graphs(launches))
        names = kernels.table["name"].astype("str")
        is_fused = _in_use_any(names, _OF_FUSED)
        calls = [kernels.table.loc[names.str.contains(each, regex=False), "calls"].max() for each in _OF_ONE]
        by_parts = _in_use_any(names, _OF_PARTS) and not is_fused
        is_single = all(count >= _MANY for count in calls) or (not by_parts and _takes_many(phases))
        return cls(
            compiles=_in_use_any(names, _OF_INDUCTOR),
            updates_by_parts=by_parts,
            updates_singly=is_single and not is_fused,
            reduces_small=_in_use_any(names, _OF_SMALL_REDUCES),
            reduces_fused=_in_use_any(names, _OF_FUSED_REDUCES),
            replays=_by_graphs(launches),
        )


_OF_INDUCTOR = r"triton_(?:poi|red|per|tem|for|spl|mix)_fused"
_OF_PARTS = r"multi_tensor_apply_kernel<.*\b(?:PointwiseOp\w*|BinaryOpListAlpha)Functor"
"""What Adam, and what stochastic gradient descent, do to lists of tensors."""
_OF_ONE = ("::addcmul_cuda_kernel(", "::addcdiv_cuda_kernel(")
"""What Adam does to one parameter, and hardly anything else."""
_MANY = 50
"""Calls of each on a rank: a few parameters updated one by one cost nothing."""
_MANY_A_STEP = 100
"""The same of the optimizer's operations in a step, of whatever name: lists of tensors make some tens."""
_SHORT_NS = 50_000
"""Longer ones are of large parameters, or multiply matrices: there is nothing to win by joining them."""
_OF_FUSED = r"Fused(?:Adam|Sgd|Adagrad)|multi_tensor_apply_kernel<.*\bAdamFunctor"
"""PyTorch's with fused=True; Apex's and Transformer Engine's."""
_OF_FUSED_REDUCES = r"all_?reduce_(?:fusion|norm|rmsnorm|mhc)|(?i:allreduceFusion)|rmsNormLamport"
_OF_SMALL_REDUCES = rf"cross_device_reduce|(?i:one_?shot)|multimem_|{_OF_FUSED_REDUCES}"
"""vLLM's own, PyTorch's, SGLang's, FlashInfer's and TensorRT-LLM's."""


def _takes_many(phases: Result | None) -> bool:
    """Whether the optimizer runs so many operations in a step that it takes parameters one by one, and short ones."""
    if phases is None or not len(phases):
        return False
    table = phases.table
    own = table[(table["phase"] == "optimizer") & table["step"].notna()]
    count, compute_ns = int(own["operations"].sum()), int(own["compute_ns"].fillna(0).sum())
    return count >= _MANY_A_STEP * len(own) > 0 and compute_ns < _SHORT_NS * count


def _by_graphs(launches: Result | None) -> bool:
    """Whether graphs launch half of all ranks' operations and more."""
    if launches is None or not len(launches):
        return False
    return bool(2 * launches.table["graph_operations"].fillna(0).sum() >= launches.table["operations"].sum() > 0)


def _in_use_any(names: pd.Series, pattern: str) -> bool:
    return bool(names.str.contains(pattern).any())


# What advice calls the tools of engines that serve models: what of `Tools` differs where nothing is trained.


_MOSTLY_PCT = 50.0

_NAMED = {
    "vLLM": r"^(?:execute_(?:\d+_)?context_|execute_new_|execute_model|gpu_model_runner)",
    "SGLang": r"^step\[",
    "TensorRT-LLM": r"^\[Executor\] _forward_step",
}
"""How an engine names its iterations."""

_GRAPHS = {
    "vLLM": "leave --enforce-eager off",
    "SGLang": "leave --disable-cuda-graph off",
    "TensorRT-LLM": "set cuda_graph_config",
}
_SCHEDULES_AHEAD = {
    "vLLM": "--async-scheduling",
    "SGLang": "leave --disable-overlap-schedule off",
    "TensorRT-LLM": "leave disable_overlap_scheduler off",
}
_TAKES_TURNS = {"vLLM": "--enable-dbo", "SGLang": "--enable-two-batch-overlap"}
"""These are for exchanges with experts alone."""

_KERNELS = r"\b(?:vllm|sglang|tensorrt_llm|turbomind|flashinfer)::"
"""Namespaces of kernels that engines run."""

_TRAINS = r"^autograd::engine::|^Optimizer\.|[Bb]ackward|_fused_(?:adam|sgd)"
"""Operators and ranges of gradients: where the host's operators were recorded, whoever trains has some."""

_LESS = "run beside them what needs no exchange (shared experts), send fewer bytes, or keep more tokens on one host"


def serves(iterations: Iterations | None) -> bool:
    """Whether the steps are an engine's iterations, of prefill or decoding: there are no gradients then."""
    return iterations is not None and len(iterations) > 0


def has_engine(kernels: Result | None, operators: Result | None) -> bool:
    """Whether kernels are an engine's where no operator is of gradients: its iterations may have no names."""
    if kernels is None or not len(kernels) or not infers(operators):
        return False
    return bool(kernels.table["name"].astype("str").str.contains(_KERNELS).any())


def infers(operators: Result | None) -> bool:
    """Whether PyTorch's operators were recorded and none is of gradients: nothing is trained."""
    if operators is None or not len(operators):
        return False
    names = operators.table["operator"].astype("str")
    return bool(names.str.startswith("aten::").any() and not names.str.contains(_TRAINS).any())


def inferred_parts(used: InUse, speed_small: str) -> dict[str, object]:
    """The fields of `Tools` that are not those of training, where no engine is known."""
    early = (
        "Start them before work that does not need their result, and wait where it is used: the next layer's gather "
        "beside this layer's products, a part's exchange beside the next part's. Of all-reduces whose result is needed "
        f"at once, take {faster_reduces(used)}."
    )
    return {
        "hide_any_comm": early,
        "start_early": early,
        "join_small": speed_small,
        "even_within": "Give all ranks as much between one exchange and the next: batches and sequences of like "
        "lengths on all ranks, each layer's experts evenly loaded.",
    }


def engine_parts(used: InUse, iterations: Iterations) -> dict[str, object]:
    """The fields of `Tools` that are not PyTorch's, of an engine whose iterations are known."""
    by_graph = _by_graph(iterations.table)
    graphs = f"{captured(iterations)}, "
    small = (
        "Most is replayed by CUDA graphs already: fuse what they hold (fused norms, quantisation and activations)."
        if by_graph
        else f"Replay small kernels by {captured(iterations)}; fuse norms, quantisation and activations."
    )
    ahead = f"let the next iteration be scheduled while this one runs{in_brackets(_SCHEDULES_AHEAD, iterations)}"
    return {
        "launch_less": f"{'' if by_graph else graphs}more requests in a batch, {ahead}",
        "fuse_small": small,
        "wait_less": f"{first_upper(ahead)}, sample on the GPU, and read tokens from a copy to pinned "
        "memory that is waited for later.",
        **exchanged(used, iterations),
    }


def captured(iterations: Iterations) -> str:
    """What makes the engine replay its iterations."""
    return f"CUDA graphs{in_brackets(_GRAPHS, iterations)}"


def exchanged(used: InUse, iterations: Iterations | None) -> dict[str, object]:
    """Those of them that are of communication."""
    faster = f"Take {faster_reduces(used)}"
    small = f"{faster}: a small collective costs its latency, whatever it carries."
    turns = (
        "Let two halves of a batch take turns, so that one computes while the other exchanges"
        f"{in_brackets(_TAKES_TURNS, iterations)}; {_LESS}."
    )
    return {
        "hide_comm": dict.fromkeys(("all_to_all", *EXPERTS), turns),
        "hide_any_comm": f"{faster}.",
        "hide_own_comm": f"{faster}.",
        "start_early": f"{faster}. What follows needs each result.",
        "join_small": small,
        "speed_small": small,
        "even_within": "Give all ranks as much between one exchange and the next: heads and experts dealt out evenly, "
        "requests of like lengths on ranks that serve their own; or exchange among fewer ranks.",
    }


def in_brackets(of_engines: Mapping[str, str], iterations: Iterations | None) -> str:
    """What the engine calls it, in brackets, by its iterations' names; of an unknown one what some do."""
    names = (
        iterations.table["name"].astype("str") if iterations is not None and len(iterations) else pd.Series(dtype="str")
    )
    own = [engine for engine, pattern in _NAMED.items() if names.str.contains(pattern).any()]
    told = [f"{engine}: {switch}" for engine, switch in of_engines.items() if not own or engine in own]
    return f" ({'; '.join(told)})" if told else ""


def faster_reduces(used: InUse) -> str:
    """What shortens a small all-reduce whose result the next operation needs, of what the kernels do not show."""
    one_shot = [] if used.reduces_small else ["all-reduces made for small arrays (one-shot, multimem)"]
    fused = [] if used.reduces_fused else ["all-reduces fused with the norm that follows"]
    return " or ".join([*one_shot, *fused, "fewer ranks in tensor parallelism"])


def _by_graph(table: pd.DataFrame) -> bool:
    """Whether graphs replay most operations of the iterations."""
    known = table[table["graph_operations"].notna()]
    return len(known) > 0 and bool(100 * known["graph_operations"].sum() >= _MOSTLY_PCT * known["operations"].sum() > 0)


# What advice on communication calls the tools of the library that makes them, where it is not torch.distributed.


_HOROVOD = r"\bhorovod::|\bHorovod(?:Grouped)?(?:Allreduce|Allgather|Broadcast|Alltoall|Reducescatter)"
"""Kernels that fill its fusion buffers, and its functions that autograd records."""

_TORCH = r"^(?:c10d::|_?c10d_functional::|record_param_comms$|nccl:)"
"""What torch.distributed records of each call of its own."""

_SOONER = "Horovod exchanges a gradient once all ranks have it, and what is ready within a cycle as one: "

_HOROVOD_HIDES = (
    f"{_SOONER}a smaller HOROVOD_FUSION_THRESHOLD lets the first exchange begin sooner and leaves less for the last; "
    "send half of the bytes (compression=hvd.Compression.fp16), or exchange in fewer steps "
    "(backward_passes_per_step)."
)

_OTHER_HIDES = (
    "Start them before work that does not need their result and wait where it is used; join small ones; or call them "
    "in fewer steps."
)


def exchange_parts(kernels: Result | None, operators: Result | None) -> dict[str, object]:
    """The fields of `Tools` that are not torch.distributed's; none where that makes the calls, or nobody can tell."""
    if _exchange_tools_any(kernels, "name", _HOROVOD) or _exchange_tools_any(operators, "operator", _HOROVOD):
        joined = (
            f"{_SOONER}raise HOROVOD_CYCLE_TIME, or let it exchange gradients in groups (num_groups): a small "
            "collective costs its latency, whatever it carries."
        )
        return {
            "hide_comm": {"backward": _HOROVOD_HIDES},
            "hide_any_comm": _HOROVOD_HIDES,
            "start_early": _HOROVOD_HIDES,
            "join_small": joined,
            "speed_small": joined,
        }
    if operators is None or not len(operators) or _exchange_tools_any(operators, "operator", _TORCH):
        return {}
    return {"hide_any_comm": _OTHER_HIDES}


def _exchange_tools_any(table: Result | None, column: str, pattern: str) -> bool:
    if table is None or not len(table):
        return False
    names = pd.Series(table.table[column].dropna().astype("object").unique(), dtype="str")
    return bool(names.str.contains(pattern).any())


# What advice calls the tools of the job's framework, without those in use already: PyTorch's, an engine's, XLA's.


@dataclass(frozen=True, slots=True)
class Tools:
    """Parts of sentences.

    Attributes:
        launch_less: how a host launches less.
        fuse_small: what to do about small kernels.
        fuse_moving: what to do about kernels that move data and compute little.
        fusing: what is said of kernels that fusing may shorten.
        hide_comm: how communication comes to run beside computing: a collective's, or that of a phase.
        hide_any_comm: the same of another collective where it is of no phase.
        hide_own_comm: the same of kernels that are no library's of collectives (userbuffers, symmetric memory).
        start_early: the same where nothing is hidden.
        join_small: what to do about small collectives.
        speed_small: the same of those that no backward pass or optimizer calls, in a job that has these.
        even_within: how ranks come to wait less for each other within a step.
        wait_less: how hosts come to wait less for what their GPUs compute; empty where the call is to go.
    """

    launch_less: str
    fuse_small: str
    fuse_moving: str
    fusing: str
    hide_comm: Mapping[str, str]
    hide_any_comm: str
    hide_own_comm: str
    start_early: str
    join_small: str
    speed_small: str
    even_within: str
    wait_less: str = ""


_FUSED = "fused norms and activations"


def _torch(used: InUse) -> Tools:
    fused = ["a fused optimizer (fused=True)"] if used.updates_by_parts else []
    fused = (
        ["an optimizer that updates all parameters at once (fused=True, foreach=True)"]
        if used.updates_singly
        else fused
    )
    graphs = (
        'CUDA graphs for the repeated part (of what torch.compile makes: mode="reduce-overhead")'
        if used.compiles
        else "torch.compile or CUDA graphs for the repeated part"
    )
    if used.replays:
        graphs = "what is launched between its CUDA graphs within these, too"
    small = (
        'Replay small kernels as a CUDA graph (of those that torch.compile makes: mode="reduce-overhead"), and fuse '
        f"those outside it ({', '.join([*fused, _FUSED])})."
        if used.compiles
        else f"Fuse small kernels ({', '.join(['torch.compile', *fused, _FUSED])}) or replay them as a CUDA graph."
    )
    if used.replays:
        small = f"Most is replayed by CUDA graphs already: fuse what they hold ({', '.join([*fused, _FUSED])})."
    whose = "norms, losses and optimizer (fused=True)" if fused else "norms and losses"
    moving = (
        f'Let torch.compile take more of it (TORCH_LOGS="graph_breaks" says where it stops), fused {whose}'
        if used.compiles
        else f"Fuse them: torch.compile, fused {whose}"
    )
    return Tools(
        ", ".join([graphs, *fused, "a larger batch"]),
        small,
        f"{moving}; keep activations in 16 bits; avoid copies and casts between layouts and types.",
        "; torch.compile has fused some of it already" if used.compiles else ": fusing (torch.compile) may shorten it",
        _HIDE_COMM,
        "Call them with async_op=True and wait where the result is used; join small ones; or call them in fewer steps.",
        "Cut them into more parts, each beside the products of the next one, or have fewer ranks in the group.",
        "Start communication as soon as its data is ready: bucketed gradients during backward, prefetched all-gathers, "
        "asynchronous collectives that are waited for where their result is used.",
        "Put them into buckets of some 25 MB, flatten the tensors, or coalesce the calls: a small collective costs its "
        "latency, whatever it carries. Where the next operation needs each result (scales of 8-bit tensors), take the "
        "values of the step before, or collectives made for small arrays (one-shot, symmetric memory).",
        f"Where what follows needs each result (tensor parallelism, statistics of norms), take {faster_reduces(used)}. "
        "Of those whose results nothing waits for (losses, metrics) make one: flatten the tensors, or coalesce the "
        "calls.",
        "Give all ranks as much between one exchange and the next: microbatches of like lengths on all ranks, each "
        "layer's experts evenly loaded; or exchange less often: no_sync until the last microbatch.",
    )


_HIDE_EXPERTS = (
    "Exchange one half of the tokens or samples while the other half computes, run beside them what needs no exchange "
    "(shared experts, dense layers), send fewer bytes, or keep more of them on one host."
)

_HIDE_ALL_TO_ALLS = (
    "Exchange one half of the tokens, samples or heads while the other half computes, run beside them what needs no "
    "exchange (dense layers; of experts those that all tokens share), send fewer bytes, or exchange within a host."
)

_HIDE_COMM = {
    "optimizer": "Gather what the optimizer updated while something else runs: the rest of the optimizer or the "
    "next forward pass (FSDP gathers layer by layer; ZeroRedundancyOptimizer: overlap_with_ddp).",
    "forward": "Start them earlier (prefetch the next layer's parameters), run them beside independent work (async "
    "tensor parallelism), or have fewer ranks in the group.",
    "backward": "Start them as soon as their gradients are there (DDP's buckets, FSDP).",
    "all_to_all": _HIDE_ALL_TO_ALLS,
    **dict.fromkeys(EXPERTS, _HIDE_EXPERTS),
}

TORCH = _torch(InUse())

_HIDES = "Start them before work that does not need their result, on a stream of its own, and wait where it is used."

_JOINS = (
    "Join small ones, or take such as are made for small arrays (one kernel over memory that GPUs share): a small "
    "collective costs its latency, whatever it carries."
)

ANY = Tools(
    "CUDA graphs for the repeated part, kernels that do more each",
    "Fuse small kernels, or replay them as a CUDA graph.",
    "Fuse them, so that data is read and written once; use fewer bytes where precision allows.",
    ": fusing may shorten it",
    {},
    _HIDES,
    _HIDES,
    _HIDES,
    _JOINS,
    _JOINS,
    "Give all ranks as much between one exchange and the next, or exchange less often.",
)
"""Those of programs of which no framework is known."""

_XLA_HIDES = (
    "Let XLA run them beside computing: --xla_gpu_enable_latency_hiding_scheduler=true with measured times "
    "(JAX_ENABLE_PGLE=true)."
)

_XLA_JOINS = (
    "Let XLA join them (--xla_gpu_all_reduce_combine_threshold_bytes and the like), or shard fewer dimensions: a small "
    "collective costs its latency, whatever it carries."
)

XLA = Tools(
    "one jax.jit around the whole step, several steps in one jax.lax.scan, no block_until_ready() or float() between "
    "steps, a larger batch",
    "Put more of the step into one jax.jit, so that XLA fuses it; let XLA replay it as command buffers "
    "(--xla_gpu_enable_command_buffer).",
    "Put more of the step into one jax.jit, so that XLA fuses it; keep activations in 16 bits; avoid transposes and "
    "casts between layouts and types.",
    ": more of it in one jax.jit may shorten it",
    {
        "forward": "Let XLA start them earlier, beside independent work: "
        "--xla_gpu_enable_latency_hiding_scheduler=true with measured times "
        "(JAX_ENABLE_PGLE=true); or split the arrays over fewer devices.",
        "backward": "Let XLA start them as soon as their gradients are there: "
        "--xla_gpu_enable_latency_hiding_scheduler=true with measured times (JAX_ENABLE_PGLE=true), and thresholds "
        "that do not join them all (--xla_gpu_all_reduce_combine_threshold_bytes and the like).",
    },
    _XLA_HIDES,
    _XLA_HIDES,
    _XLA_HIDES,
    _XLA_JOINS,
    _XLA_JOINS,
    "Give all ranks as much between one exchange and the next: arrays sharded evenly, each layer's experts evenly "
    "loaded; or exchange less often: gradients summed over microbatches before they are reduced.",
)


def tools_of(
    ranks: Result | None,
    kernels: Result | None = None,
    iterations: Iterations | None = None,
    phases: Result | None = None,
    operators: Result | None = None,
    launches: Result | None = None,
) -> Tools:
    """Those of the framework that the traces are of: XLA's where each is JAX's, or says that XLA compiled it.

    Of programs of which the profiler knows none, and no kernel is a framework's: of none.

    With the job's kernels and phases PyTorch's without those that these show in use, or of no use. Where steps are
    iterations of an engine that serves: its own; where only kernels are, its own of communication. Of communication
    those of Horovod where kernels or operators are its own, and of no library where operators show that it is not
    torch.distributed's; where nothing is trained nothing of gradients.
    """
    if ranks is None or not len(ranks):
        return TORCH
    is_xla = ranks.table["format"] == "xplane"
    if "versions" in ranks.table:
        is_xla |= ranks.table["versions"].astype("object").fillna("").str.contains("compiler XLA", regex=False)
    if is_xla.all():
        return XLA
    if is_plain(ranks, kernels, operators):
        return ANY
    used = InUse.of(kernels, phases, launches)
    torch = _torch(used)
    if iterations is None or not serves(iterations):
        if has_engine(kernels, operators):
            calls: dict[str, Any] = exchanged(used, None)
        else:
            calls = exchange_parts(kernels, operators)
        if not calls and infers(operators):
            calls = inferred_parts(used, torch.speed_small)
        return replace(torch, **calls)
    parts: dict[str, Any] = engine_parts(used, iterations)
    return replace(torch, **parts)


def data_parallel_advice(operators: Result, ranks: Result) -> str:
    """What to use instead where one process drives all GPUs by `nn.DataParallel`; empty where it does not."""
    if len(ranks) < 2 or not len(operators):
        return ""
    names = operators.table["operator"].astype("object").unique()
    if not {*_DATA_PARALLEL} <= {*names}:
        return ""
    return (
        "nn.DataParallel copies the parameters to every GPU in each step, and its threads take turns at Python: use "
        "DistributedDataParallel, with a process for each GPU. "
    )


_DATA_PARALLEL = ("Scatter", "Broadcast", "Gather")
"""Autograd functions that it alone records, all three."""
