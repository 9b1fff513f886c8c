"""Rules about tensors that kernels turn from one memory layout into the other."""

import re

from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.findings.basis import plain, severity
from traceanalyzer.findings.devices.named_kernels import named_kernels
from traceanalyzer.findings.finding import Finding

LAYOUT_PCT = 3.0
"""Of a rank's time, in kernels that only turn layouts."""

_TURNS = re.compile(r"nchw_?To_?nhwc|nhwc_?To_?nchw", re.IGNORECASE)


def layout_conversions(headline: Headline, kernels: Kernels, *, layout_pct: float = LAYOUT_PCT) -> list[Finding]:
    """Kernels of cuDNN's that turn tensors between NCHW and NHWC take 3 % of a rank's time or more.

    Convolutions on tensor cores want NHWC: what is kept otherwise is turned before and after each of them.
    """
    own = named_kernels(headline, kernels, lambda name: bool(_TURNS.search(name)), layout_pct)
    if own is None:
        return []
    return [
        Finding(
            severity=severity(own.pct),
            title=f"Rank {own.rank}'s kernels turn tensors from one layout into the other ({own.names}): {own.cost}.",
            evidence=plain(own.rows[["rank", "name", "calls", "total_ns"]]),
            recommendation="Keep them as convolutions on tensor cores want them: model.to(memory_format="
            "torch.channels_last), the inputs too; norms and pooling then run in that layout as well.",
            caveat="Operators without such an implementation turn them back. The gain is what these kernels take.",
            gain_ns=round(own.cost_ns),
            named=(own.rank,),
            table="kernels",
            is_to_do_first=True,
        )
    ]
