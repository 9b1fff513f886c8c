"""Engines whose GPUs have nothing to do between iterations: whether for want of requests, the trace does not say."""

from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.findings.basis import MOSTLY, Basis
from traceanalyzer.findings.engine_tools import in_brackets

_ADVICE = (
    "If none were, the load is too small to fill the GPUs and there is nothing to mend: record under load. Else "
    "scheduling requests and handing out results takes that long: "
)

_WAITING = {
    "vLLM": "vllm:num_requests_waiting",
    "SGLang": "sglang:num_queue_reqs",
    "TensorRT-LLM": "numQueuedRequests",
}


def is_between(iterations: Iterations, rank: int, cost_ns: float, basis: Basis) -> bool:
    """Whether a rank's GPU idles for its host mostly while that is in no iteration of an engine."""
    if not len(iterations):
        return False
    own = basis.within(iterations.table)
    between_ns = own.loc[own["rank"] == rank, "between_ns"].sum()
    return bool(between_ns >= MOSTLY * cost_ns * basis.per > 0)


def advice_between(launch_less: str, iterations: Iterations) -> str:
    """What to look at first, and what to do where requests were waiting."""
    metrics = in_brackets(_WAITING, iterations)
    return f"See in the engine's metrics whether requests were waiting then{metrics}. {_ADVICE}{launch_less}."
