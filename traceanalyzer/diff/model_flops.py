"""Whether runs did the same work, as far as the model FLOPs that their traces hold can tell."""

from collections.abc import Sequence

from traceanalyzer.diff.captures import Capture
from traceanalyzer.diff.scales import world_size

TOLERANCE_PCT = 5.0
"""Of the larger: operators that one of two equal runs fuses or repeats change their FLOPs by less."""


def model_flops(capture: Capture) -> float | None:
    """Model FLOPs of one step of all ranks, mean over the compared steps.

    `None` unless every rank of the job tells them for each of these steps in full (`covered_pct` 100): what is only a
    lower bound cannot be compared.
    """
    frame, size = capture.table("mfu"), world_size(capture)
    if frame is None or size is None or not capture.steps:
        return None
    own = frame[frame["step"].isin(capture.steps)]
    is_whole = len(own) == size * len(capture.steps) and bool((own["covered_pct"] >= 100).fillna(value=False).all())
    return float(own["model_flops"].sum()) / len(capture.steps) if is_whole else None


def told(capture: Capture) -> str | None:
    """The same for people, and of one rank that does more than `TOLERANCE_PCT` more than each other one its part."""
    flops = model_flops(capture)
    if flops is None:
        return None
    frame = capture.tables["mfu"]
    own = frame[frame["step"].isin(capture.steps)].groupby("rank")["model_flops"].sum() / len(capture.steps)
    most = own.nlargest(2).astype("float64")
    is_uneven = len(most) > 1 and most.iloc[1] < most.iloc[0] * (1 - TOLERANCE_PCT / 100)
    whose = f", {most.iloc[0] / 1e12:,.4g} of them on rank {most.index[0]}" if is_uneven else ""
    return f"{flops / 1e12:,.4g} TFLOP{whose}"


def is_close(captures: Sequence[Capture]) -> bool:
    """Whether all captures tell, and the largest exceeds the least by no more than `TOLERANCE_PCT` of itself."""
    flops = [model_flops(capture) for capture in captures]
    known = [value for value in flops if value is not None]
    return len(known) == len(flops) and max(known) - min(known) <= max(known) * TOLERANCE_PCT / 100
