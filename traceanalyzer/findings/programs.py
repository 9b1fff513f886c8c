"""What advice says to programs of no framework that learns, as those of C++ and Fortran that Nsight Systems records."""

import re

import pandas as pd

from traceanalyzer.analyses import Result, Results

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
    if not ranks.table["format"].isin(_WITHOUT_FRAMEWORK).all() or _any(ranks, "versions", "compiler XLA"):
        return False
    return not _any(kernels, "name", _FRAMEWORK) and not _any(operators, "operator", _OPERATOR)


def is_of_plain_program(results: Results) -> bool:
    """The same of all Results."""
    return is_plain(*(results.get(name) for name in BY_PROGRAM))


def _any(result: Result | None, column: str, pattern: str | re.Pattern[str]) -> bool:
    if result is None or column not in result.table:
        return False
    names = pd.Series(result.table[column].dropna().astype("object").unique(), dtype="str")
    return bool(names.str.contains(pattern).any())
