"""What advice calls the tools of engines that serve models: what of `Tools` differs where nothing is trained."""

import pandas as pd

from traceanalyzer.analyses.phases.iterations import Iterations
from traceanalyzer.findings.in_use import InUse
from traceanalyzer.kinds import EXPERTS
from traceanalyzer.meaning.sentences import first_upper

_MOSTLY_PCT = 50.0

_AHEAD = (
    "let the next iteration be scheduled while this one runs (vLLM: --async-scheduling; SGLang: leave "
    "--disable-overlap-schedule off)"
)

_TAKE_TURNS = (
    "let two halves of a batch take turns, so that one computes while the other exchanges (vLLM: --enable-dbo; SGLang: "
    "--enable-two-batch-overlap)"
)

_LESS = "run beside them what needs no exchange (shared experts), send fewer bytes, or keep more tokens on one host"


def serves(iterations: Iterations | None) -> bool:
    """Whether the steps are an engine's iterations, of prefill or decoding: there are no gradients then."""
    return iterations is not None and len(iterations) > 0


def engine_parts(used: InUse, iterations: Iterations) -> dict[str, object]:
    """The fields of `Tools` that are not PyTorch's."""
    by_graph = _by_graph(iterations.table)
    faster = f"Take {' or '.join([*_faster_reduces(used), 'fewer ranks in tensor parallelism'])}"
    graphs = "CUDA graphs (vLLM: leave --enforce-eager off; SGLang: leave --disable-cuda-graph off), "
    small = "Most is replayed by CUDA graphs already: fuse what they hold (fused norms, quantisation and activations)."
    return {
        "launch_less": f"{'' if by_graph else graphs}more requests in a batch, {_AHEAD}",
        **({"fuse_small": small} if by_graph else {}),
        "hide_comm": dict.fromkeys(("all_to_all", *EXPERTS), f"{first_upper(_TAKE_TURNS)}; {_LESS}."),
        "hide_any_comm": f"{faster}; or {_TAKE_TURNS}.",
        "hide_own_comm": f"{faster}; or {_TAKE_TURNS}.",
        "start_early": f"{faster}; or {_TAKE_TURNS}. What follows needs each result.",
        "join_small": f"{faster}: a small collective costs its latency, whatever it carries.",
        "even_within": "Give all ranks as much between one exchange and the next: heads and experts dealt out evenly, "
        "requests of like lengths on ranks that serve their own; or exchange among fewer ranks.",
        "wait_less": f"{first_upper(_AHEAD)}, sample on the GPU, and read tokens from a copy to pinned "
        "memory that is waited for later.",
    }


def _faster_reduces(used: InUse) -> list[str]:
    """Kinds of all-reduces that the job's kernels do not show."""
    one_shot = [] if used.reduces_small else ["all-reduces made for small arrays (one-shot, multimem)"]
    return [*one_shot, *([] if used.reduces_fused else ["all-reduces fused with the norm that follows"])]


def _by_graph(table: pd.DataFrame) -> bool:
    """Whether graphs replay most operations of the iterations."""
    known = table[table["graph_operations"].notna()]
    return len(known) > 0 and bool(100 * known["graph_operations"].sum() >= _MOSTLY_PCT * known["operations"].sum() > 0)
