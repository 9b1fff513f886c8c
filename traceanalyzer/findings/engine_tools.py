"""What advice calls the tools of engines that serve models: what of `Tools` differs where nothing is trained."""

from collections.abc import Mapping

import pandas as pd

from traceanalyzer.analyses import Result
from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.findings.in_use import InUse
from traceanalyzer.kinds import EXPERTS
from traceanalyzer.meaning.sentences import first_upper

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
