"""What the tools and settings that advice names for NVIDIA's GPUs are called on those of AMD and Intel."""

import re
from collections.abc import Mapping
from dataclasses import replace
from functools import cache

import pandas as pd

from traceanalyzer.analyses import Results
from traceanalyzer.findings.finding import Finding

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
