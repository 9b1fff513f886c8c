"""Whether runs can be of one model, as far as the shapes of their matrix products can tell."""

import re
from collections.abc import Sequence

from traceanalyzer.analyses import Results
from traceanalyzer.diff.captures import Capture

_MATRIX = re.compile(r"\[(\d+),\s*(\d+)\]")

_MOST_TOLD = 8


def dimensions(results: Results) -> tuple[int, ...]:
    """Lengths and widths of all two-dimensional arguments of matrix products, in order; none without shapes.

    Products of batches of matrices (attention) are left out: heads and their width are alike in most models.
    """
    table = results["efficiency"].to_frame() if "efficiency" in results else None
    if table is None or table.empty:
        return ()
    shapes = table.loc[table["family"] == "gemm", "shapes"].dropna().astype("str").unique()
    return tuple(sorted({int(size) for text in shapes for pair in _MATRIX.findall(text) for size in pair}))


def told(capture: Capture) -> str | None:
    """The largest for people; `None` where they are not known."""
    largest = capture.dimensions[-_MOST_TOLD:]
    more = "… " if len(capture.dimensions) > _MOST_TOLD else ""
    return more + ", ".join(map(str, largest)) if largest else None


def is_shared(captures: Sequence[Capture]) -> bool:
    """Whether every run that tells has a dimension of the first one that does.

    Runs of one model have its width at least, however they cut batch, matrices or layers; those of other models may
    share a dimension by chance.
    """
    known = [set(capture.dimensions) for capture in captures if capture.dimensions]
    return all(known[0] & other for other in known[1:])
