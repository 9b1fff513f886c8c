"""Which of a host's calls were recorded, and what to record where nothing says which launched the GPU's work."""

from traceanalyzer.analyses.trace.ranks import Ranks

_WITH_CALLS = {
    "kineto": "torch.profiler.profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA])",
    "nsys": "nsys profile --trace=cuda,nvtx",
    "rocprofv3": "rocprofv3 --hip-trace beside --kernel-trace",
    "xplane": "jax.profiler.start_trace with host_tracer_level=2",
}
"""How the calls are recorded, by format."""

_RECORDED_WHOLE = (
    "Let hosts wait for their GPUs before recording begins (torch.cuda.synchronize()), so that nothing queued before "
    "runs in it, or record more steps. Give the trace with its events' arguments: an operation's number (correlation) "
    "is that of its call."
)
"""What to do where calls were recorded."""


def calls_of(ranks: Ranks, rank: int) -> tuple[str, str]:
    """Why nothing says when the rank's work was launched, by what was recorded of its host; and what to do."""
    own = ranks.table[ranks.table["rank"] == rank].iloc[0]
    if own["api_calls"]:
        return "most of its work is of no call that was recorded", _RECORDED_WHOLE
    with_calls = _WITH_CALLS.get(str(own["format"]), "the host's calls")
    what = "the calls of the GPU's runtime, too" if own["host_operators"] else "the host too"
    return "which calls launched its work was not recorded", f"Record {what}: {with_calls}."
