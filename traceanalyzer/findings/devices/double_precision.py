"""Rules about matrix work in 64 bits, which models hardly ever need."""

import re

from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES, category
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.findings.basis import plain, severity
from traceanalyzer.findings.devices.named_kernels import named_kernels
from traceanalyzer.findings.finding import Finding

DOUBLE_PCT = 3.0
"""Of a rank's time, in matrix kernels of double precision."""

# cuBLAS' `dgemm`, CUTLASS' `d884gemm`, `f64f64` of both; hipBLASLt's `_DB_`, its letter of the type.
_DOUBLE = re.compile(r"\bdouble\b|f64|d884gemm|(?<![a-z])[dz]gem[mv]|_D[BD]_")


def double_precision(headline: Headline, kernels: Kernels, *, double_pct: float = DOUBLE_PCT) -> list[Finding]:
    """Matrix kernels whose names say that they compute in 64 bits take 3 % of a rank's time or more.

    No gain is said: what it takes in another precision depends on the GPU and the sizes.
    """
    own = named_kernels(headline, kernels, _is_such, double_pct)
    if own is None:
        return []
    return [
        Finding(
            severity=severity(own.pct),
            title=f"Rank {own.rank}'s matrix work runs in double precision ({own.names}): {own.cost}.",
            evidence=plain(own.rows[["rank", "name", "calls", "total_ns"]]),
            recommendation="Compute in float32, or in 16 bits (torch.autocast): NumPy's arrays are float64, and so is "
            "what torch.from_numpy makes of them, and a model after .double().",
            caveat="Told by kernels' names. What is meant to be exact (linear algebra, statistics) stays as it is.",
            named=(own.rank,),
            table="kernels",
        )
    ]


def _is_such(name: str) -> bool:
    return bool(_DOUBLE.search(name)) and category(name, "compute", None) in MATRIX_CATEGORIES
