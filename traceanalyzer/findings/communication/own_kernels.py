"""Whether communication runs in kernels of a job's own: userbuffers, symmetric memory, an engine's all-reduces."""

from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.kinds import CALL, comm_kernel


def is_of_own_kernels(kernels: Kernels, collective: str | None = None) -> bool:
    """Whether it runs, most of its time, in kernels that no host's call into a library of collectives describes.

    Without one, all communication.
    """
    table = kernels.table
    known = {
        name: found
        for name in table["name"].unique()
        if (found := comm_kernel(str(name))) and not found.is_fused and collective in (None, found.collective)
    }
    of_it = table[table["name"].isin([*known])]
    is_called = of_it["name"].map({name: found.sizes == CALL for name, found in known.items()}).astype(bool)
    return bool(2 * of_it.loc[~is_called, "total_ns"].sum() > of_it["total_ns"].sum())
