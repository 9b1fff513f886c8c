"""What the split of each rank's time says by itself, whatever its cause: for a verdict where rules say little.

Each gives Findings of severity `info`, whose titles follow each other as sentences; none of them is a rule's.
"""

from typing import TYPE_CHECKING

from traceanalyzer.analyses.communication.nccl import Nccl
from traceanalyzer.analyses.integrity.integrity import LEFT_OUT, MISSING_RANKS, Integrity
from traceanalyzer.analyses.integrity.unknown_communication import UNKNOWN_KERNELS
from traceanalyzer.analyses.kernels.kernel_names import MATRIX_CATEGORIES
from traceanalyzer.analyses.kernels.kernels import Kernels
from traceanalyzer.analyses.operators.categories import Categories
from traceanalyzer.analyses.operators.mfu import Mfu
from traceanalyzer.analyses.overview.over_ranks import OverRanks
from traceanalyzer.analyses.overview.time_parts import TimeParts
from traceanalyzer.analyses.trace.ranks import Ranks
from traceanalyzer.findings.basis import count_of_steps
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.tools import tools_of
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.quantities import digits, per_cent, text
from traceanalyzer.meaning.severities import GRAVE
from traceanalyzer.meaning.wholes import rate

if TYPE_CHECKING:
    from traceanalyzer.analyses.frames import Row
    from traceanalyzer.analyses.names import OverRanksColumn


def one_waits_while_another_idles(
    time_parts: TimeParts, over_ranks: OverRanks, nccl: Nccl, apart_pct: float = 20.0
) -> list[Finding]:
    """One rank is idle while another sits in a collective, both by so much more of the time than the other one.

    Whether the one waits for the other, rules say.
    """
    late, waiting = over_ranks.of("idle_pct")["most_rank"], over_ranks.of("exposed_comm_pct")["most_rank"]
    if late is None or waiting is None or late == waiting:
        return []
    table = time_parts.to_frame().set_index("rank")
    idle, comm = table["idle_pct"], table["exposed_comm_pct"]
    if not (idle[late] - idle[waiting] >= apart_pct and comm[waiting] - comm[late] >= apart_pct):
        return []
    unit = rate(count_of_steps(table))
    title = (
        f"Rank {late}'s GPU is idle for {text(table.loc[late, 'idle_ns'], Unit.NS)}{unit} "
        f"({per_cent(idle[late])} %) while rank {waiting} sits in {_collective(nccl, waiting)} for "
        f"{text(table.loc[waiting, 'exposed_comm_ns'], Unit.NS)}{unit} ({per_cent(comm[waiting])} %)."
    )
    return [Finding("info", title, ranks=(late, waiting))]


def _collective(nccl: Nccl, rank: int) -> str:
    """The collective of which most time is exposed on a rank."""
    own = nccl.to_frame()
    own = own[own["rank"] == rank]
    if own.empty:
        return "communication"
    return collective_words(own.loc[own["exposed_comm_ns"].idxmax(), "collective"])


def much_idle(over_ranks: OverRanks, notable_pct: float = 10.0, apart_pct: float = 20.0) -> list[Finding]:
    """The GPUs are idle for a part of the time that is worth a sentence."""
    return _notable("idle", over_ranks.of("idle_pct"), notable_pct, apart_pct)


def much_exposed(over_ranks: OverRanks, notable_pct: float = 10.0, apart_pct: float = 20.0) -> list[Finding]:
    """Communication, or copies, that nothing hides take a part of the time that is worth a sentence."""
    comm, copy = over_ranks.of("exposed_comm_pct"), over_ranks.of("exposed_copy_pct")
    return [
        *_notable("in communication that no compute hides", comm, notable_pct, apart_pct),
        *_notable("in copies that neither compute nor communication hides", copy, notable_pct, apart_pct),
    ]


def _notable(name: str, share: "Row[OverRanksColumn]", notable_pct: float, apart_pct: float) -> list[Finding]:
    mean, least, most = share["mean_pct"], share["least_pct"], share["most_pct"]
    if mean is None or mean < notable_pct:
        return []
    if share["ranks"] == 1:
        title = f"For {per_cent(mean)} % of the time it is {name}."
    elif most - least < apart_pct:
        title = f"On average {per_cent(mean)} % of the time is spent {name}."
    else:
        title = (
            f"On average {per_cent(mean)} % of the time is spent {name}, unevenly: {per_cent(most)} % on rank "
            f"{share['most_rank']}, {per_cent(least)} % on rank {share['least_rank']}."
        )
    apart = most - least >= apart_pct
    named = (int(share["most_rank"]), int(share["least_rank"])) if apart else ()
    return [Finding("info", title, named=named)]


def unknown_kernels(integrity: Integrity) -> list[Finding]:
    """Kernels may communicate that no rule knows: nothing can be called well."""
    table = integrity.to_frame()
    if table.empty or not (table["check"].isin(UNKNOWN_KERNELS) & table["severity"].isin(GRAVE)).any():
        return []
    title = (
        "How much of it is communication cannot be told: kernels may communicate that no rule knows (see the notes)."
    )
    return [Finding("info", title)]


def nothing_without_others(integrity: Integrity, over_ranks: OverRanks) -> list[Finding]:
    """Ranks of the job are missing: one that waits for nobody may be the one that all others wait for."""
    table = integrity.to_frame()
    if table.empty or not table["check"].isin((MISSING_RANKS, LEFT_OUT)).any():
        return []
    share = over_ranks.of("not_computing_pct")
    one = share["ranks"] == 1
    here, it = (f"rank {share['most_rank']}'s", "it") if one else ("any of these ranks'", "them")
    own = (int(share["most_rank"]),) if one else ()
    what = "idle, exposed communication or exposed copies"
    itself = "itself" if one else "themselves"
    most = f"no more than {per_cent(share['most_pct'])} %"
    return [
        Finding("info", f"By {itself} nothing stands out: {most} of {here} time is {what}.", named=own),
        Finding("info", f"Whether the job's other ranks wait for {it} cannot be told without their traces."),
    ]


def nothing(over_ranks: OverRanks) -> list[Finding]:
    """No part but computing takes a notable share of any rank's time."""
    most = digits(over_ranks.of("not_computing_pct")["most_pct"])
    what = "idle, exposed communication or exposed copies"
    return [Finding("info", f"Nothing stands out: no more than {most} % of any rank's time is {what}.")]


def far_from_peak(mfu: Mfu, over_ranks: OverRanks) -> list[Finding]:
    """How near a run without faults is to what its GPUs can do."""
    mean = over_ranks.of("mfu_pct")["mean_pct"]
    if mean is None or mean > 100:  # the peak, the work or the times are wrong
        return []
    first = mfu.known().iloc[0]
    title = (
        f"What there is to gain lies in the kernels: model FLOPs are {per_cent(mean)} % of the peak of "
        f"{first['gpu']} in {first['element_type']} ({first['peak_tflops_per_s']:,.0f} TFLOP/s)."
    )
    return [Finding("info", title)]


def not_matrix_work(categories: Categories, kernels: Kernels, ranks: Ranks) -> list[Finding]:
    """How much of compute is kernels that move data and that fusing shortens, rather than matrix work."""
    compute = categories.of_compute()
    matrix = compute["category"].isin(MATRIX_CATEGORIES)
    if not compute["gpu_ns"].sum() or matrix.all():
        return []
    share = 100 * float(compute.loc[~matrix, "gpu_ns"].sum()) / float(compute["gpu_ns"].sum())
    rest = compute[~matrix].groupby("category", observed=True)["gpu_ns"].sum().sort_values(ascending=False)
    most = " and ".join(str(name) for name in rest.index[:2])
    said = (
        f"{per_cent(share)} % of compute kernel time in the capture is neither matrix work nor attention, {most} first"
    )
    return [Finding("info", f"{said}{tools_of(ranks, kernels).fusing}.")]
