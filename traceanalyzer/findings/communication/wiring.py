"""Rule about NCCL's log beside what the trace measured."""

from collections.abc import Mapping

from traceanalyzer.analyses.base import is_true
from traceanalyzer.analyses.communication.collectives import Collectives
from traceanalyzer.findings.basis import plain
from traceanalyzer.findings.finding import Finding
from traceanalyzer.meaning.names import collectives_words
from traceanalyzer.meaning.sentences import first_upper

PCIE_MOST_GBPS = 64.0
"""One direction of PCIe 5.0 x16, decimal GB/s: what shared memory on one host carries at most."""

_BY_HOST_MEMORY = ("SHM",)


def log_of_another_run(collectives: Collectives, *, pcie_most_gbps: float = PCIE_MOST_GBPS) -> list[Finding]:
    """Bandwidths that the transport of NCCL's log cannot carry: the log is of another run."""
    table = collectives.to_frame()
    if table.empty or table["transport"].isna().all():
        return []
    is_host = is_true(table["transport"].map(_is_through_the_host, na_action="ignore"))
    found = table[is_host & (table["busbw_gbps"] > pcie_most_gbps).fillna(value=False)]
    if found.empty:
        return []
    most = found.sort_values("busbw_gbps").iloc[-1]
    return [
        Finding(
            severity="medium",
            title=f"NCCL's log says {most['transport']}, which goes over PCIe, but "
            f"{collectives_words(most['collective'])} reach {most['busbw_gbps']:.0f} GB/s: the log is not of this run.",
            evidence=plain(found),
            recommendation="Give the log of the captured run (--nccl-log), or none.",
            caveat=f"PCIe 5.0 x16 carries {PCIE_MOST_GBPS:.0f} GB/s a direction; a newer PCIe carries more.",
        )
    ]


def taken(row: Mapping[str, object]) -> str:
    """What is known of the way that a group's data takes, as the end of a sentence; empty where nothing is."""
    path, transport = row["path"], row["transport"]
    told = [
        f"NCCL's log says {transport}" if isinstance(transport, str) else "",
        f"the topology {path}" if isinstance(path, str) else "",
    ]
    said = " and ".join(text for text in told if text)
    return f" {first_upper(said)} between these ranks." if said else ""


def _is_through_the_host(transport: str) -> bool:
    return all(name.split("/")[0] in _BY_HOST_MEMORY for name in transport.split(", "))
