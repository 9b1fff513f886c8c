"""What is to be done about an episode of lateness, and when that may not hold."""

from collections.abc import Mapping
from typing import Any

from traceanalyzer.analyses.blame.transfers import WITH_ALL, WITH_MOST
from traceanalyzer.analyses.blame.what_ran import COMPILING, MEMORY_CALLS, OTHER_PROCESS
from traceanalyzer.analyses.host.compilations import DYNAMO, XLA
from traceanalyzer.analyses.host.host_activity import NOTHING
from traceanalyzer.analyses.host.other_threads import BESIDE
from traceanalyzer.findings.late.late_words import beside, is_of_hosts, is_slow_gpu, name, who
from traceanalyzer.meaning.sentences import first_upper
from traceanalyzer.meaning.vocabulary import BETWEEN_KERNELS, DATA, HOST, LAUNCH, SYNC, UNKNOWN

OF_HOST = "advice_of_host"
"""What is added to an episode whose late host operators tell about: what to do then."""

CPU = (
    "its cores' clock, other processes on them, other threads of the process (one at a time runs Python), binding to "
    "cores and to the GPU's NUMA node"
)

ADVICE = {
    "compute": "Give the ranks equal work: sequence lengths, experts, uneven last batches. If the work is equal, look "
    "at these GPUs' clocks and temperature.",
    "copies": "Pin the host memory and copy on a stream of its own, or move less.",
    "transfer": "Compare the links of these ranks with the others' (nvidia-smi topo -m, NCCL_DEBUG=INFO).",
    HOST.key: f"Compare what these hosts launch with the others (table operators). If that is the same, look at their "
    f"CPU: {CPU}.",
    DATA.key: "Load ahead on these ranks: more workers, prefetch, pinned memory; look for slow storage, long samples.",
    SYNC.key: "Remove what waits for the GPU on these ranks: .item(), .cpu(), printing tensors, blocking copies.",
    LAUNCH.key: "Look at what else runs on these GPUs, and at the order of their streams.",
    UNKNOWN.key: "Record these ranks' hosts, and what else runs on their GPUs: the traces do not say what they wait "
    "for.",
    BETWEEN_KERNELS.key: "Fuse small kernels (torch.compile) or replay them with CUDA graphs.",
}

_RANGES = (
    "put torch.profiler.record_function ranges around saving, logging, evaluation and data handling, or record "
    "with_stack=True."
)

_NOW_AND_THEN = "Find what runs there on {who} and not in other steps: " + _RANGES

PAGEABLE = "pageable"

WHY_COMPILED = {
    DYNAMO: "What compiles anew in a running job meets new shapes or new values: "
    'TORCH_LOGS="recompiles" says which. Pad to few lengths, or let them vary (dynamic=True, '
    "torch._dynamo.mark_dynamic); if it is the first time only, record later.",
    XLA: "jax.jit compiles anew for each new shape, type and static argument: jax.log_compiles() says "
    "for what. Pad to few lengths; keep compiled code from run to run (jax_compilation_cache_dir); if it is the first "
    "time only, record later.",
}
"""What to do, by what compiles."""

_NAMED_ADVICE = {
    **{COMPILING + compiler: why for compiler, why in WHY_COMPILED.items()},
    "compute": "Find what takes {who} longer in {name} (more calls, or more to do in each), or give the ranks equal "
    "work.",
    HOST.key: "Take {name} out of the step on {who}, do it less often, or on all ranks at once.",
    MEMORY_CALLS: "Let {who} keep the memory that its allocator holds: no torch.cuda.empty_cache() in the step, sizes "
    "that repeat, PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True where memory is nearly full.",
    NOTHING: "Find what runs there on {who}, in code between operators: " + _RANGES,
    BESIDE: "One thread at a time runs Python: move {beside} on {who} from its thread to a process of its own "
    "(DataLoader workers, multiprocessing), or let it release Python's lock.",
    DATA.key: "Load ahead on {who} ({name}): more workers, prefetch, pinned memory; look for slow storage or long "
    "samples.",
    WITH_ALL: "Look at what all data of {who} passes: network card, its cable and switch port, NVLinks, PCIe "
    "(nvidia-smi nvlink -s, nvidia-smi topo -m, ibstat); the links of other ranks are faster.",
    "copies": "Let {name} of {who} run on a stream of its own, beside compute, or move less.",
    PAGEABLE: "Pin the host memory of what {who} copies ({name}) and copy on a stream of its own, or move less.",
}

LOOK_AT_GPU = (
    "look at the GPU: clocks, power limit, temperature (nvidia-smi -q -d CLOCK,POWER,TEMPERATURE,PERFORMANCE), and "
    "what else runs on it."
)
SLOW_GPU = f"The work is the same, so {LOOK_AT_GPU}"
SHARED_GPU = (
    "See what else runs on that GPU (nvidia-smi, nvidia-smi pmon): another job, a process that did not end, a "
    "notebook. Give this job the GPU alone; who must share it does so by MPS or MIG, not in time slices."
)
_SLOW_IN_PART = (
    "The work is the same, and only {name} slower: where that moves memory rather than multiplies, look at the clock "
    "and errors of these GPUs' memory (nvidia-smi -q -d CLOCK,ECC,ROW_REMAPPER,PERFORMANCE)."
)
_BY_NAME = (NOTHING, MEMORY_CALLS, *(COMPILING + compiler for compiler in WHY_COMPILED))

_UNSEEN_SIZES = "Sizes that a kernel's grid does not show may differ, such as lengths of sequences."

BY_SIGNS = "Told by kernels of many names that are longer by the same time: no trace records what another process does."

PROFILED = "Recorded under the profiler, which slows the host: time some steps without it before you spend effort."


def advice(row: Mapping[str, Any]) -> str:
    """What to do, by the name of what is longer where there is one."""
    if is_slow_gpu(row):
        return {None: SLOW_GPU, OTHER_PROCESS: SHARED_GPU}.get(row["name"], _SLOW_IN_PART.format(name=name(row)))
    if row.get(OF_HOST):
        return str(row[OF_HOST])
    if row["cause"] == HOST.key and row["name"] is None and not row["is_in_every_step"]:
        return _NOW_AND_THEN.format(who=who(row))  # a slow host is slow in every step
    key = row["name"] if row["name"] in _BY_NAME else row["cause"]
    key = BESIDE if str(row["name"]).startswith(BESIDE) else key
    key = WITH_ALL if str(row["name"]).endswith((WITH_ALL, WITH_MOST)) else key
    key = PAGEABLE if key == "copies" and PAGEABLE in (row["name"] or "").lower() else key
    if row["name"] is None or key not in _NAMED_ADVICE:
        return ADVICE.get(row["cause"], "")
    return first_upper(_NAMED_ADVICE[key].format(who=who(row), name=name(row), beside=beside(row)))


def caveat(row: Mapping[str, Any]) -> str | None:
    """When it may not hold."""
    said = []
    if row["gain_ns"] is None:
        said.append("No step that means are taken of has it, so that its gain is not known.")
    elif row["gain_is_bound"]:
        said.append("The gain is the most that can be won.")
    if is_slow_gpu(row):
        said.append(BY_SIGNS if row["name"] == OTHER_PROCESS else _UNSEEN_SIZES)
    if is_of_hosts(row):
        said.append(PROFILED)
    return " ".join(said) or None
