"""Rules about tensors that kernels turn from one memory layout into the other."""

import re

from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.findings.basis import count_of_steps, plain, severity
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.quantities import time_text
from traceanalyzer.meaning.wholes import step_or_capture, within_whole
from traceanalyzer.model.tables import rows_where

LAYOUT_PCT = 3.0
"""Of a rank's time, in kernels that only turn layouts."""

_TURNS = re.compile(r"nchw_?To_?nhwc|nhwc_?To_?nchw", re.IGNORECASE)

_MOST_NAMED = 2


def layout_conversions(headline: Headline, kernels: Kernels, *, layout_pct: float = LAYOUT_PCT) -> list[Finding]:
    """Kernels of cuDNN's that turn tensors between NCHW and NHWC take 3 % of a rank's time or more.

    Convolutions on tensor cores want NHWC: what is kept otherwise is turned before and after each of them.
    """
    if not len(headline) or not len(kernels):
        return []
    table = kernels.to_frame()
    compute = rows_where(table, table["kind"] == "compute")
    own = rows_where(compute, compute["name"].astype("str").str.contains(_TURNS))
    part = own.groupby("rank")["total_ns"].sum() / compute.groupby("rank")["total_ns"].sum()
    held = headline.to_frame().set_index("rank")
    steps = count_of_steps(held)
    per = steps or 1
    cost_ns = (part * held["compute_ns"].astype("float64") / per).dropna()
    share = 100.0 * cost_ns / (held["window_ns"].astype("float64") / per)
    share = share.dropna()
    if share.empty or not share.max() >= layout_pct:
        return []
    rank = int(share.idxmax())
    rows = own[own["rank"] == rank].sort_values("total_ns", ascending=False)
    names = " and ".join(dict.fromkeys(short_name(name) for name in rows["name"].head(_MOST_NAMED)))
    return [
        Finding(
            severity=severity(share[rank]),
            title=f"Rank {rank}'s kernels turn tensors from one layout into the other ({names}): "
            f"{time_text(cost_ns[rank])} {within_whole(steps)}, {share[rank]:.0f} % "
            f"of {step_or_capture(steps)}.",
            evidence=plain(rows[["rank", "name", "calls", "total_ns"]]),
            recommendation="Keep them as convolutions on tensor cores want them: model.to(memory_format="
            "torch.channels_last), the inputs too; norms and pooling then run in that layout as well.",
            caveat="Operators without such an implementation turn them back. The gain is what these kernels take.",
            gain_ns=round(cost_ns[rank]),
            named=(rank,),
            table="kernels",
            is_to_do_first=True,
        )
    ]
