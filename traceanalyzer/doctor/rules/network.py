"""Rules about the network: sockets where InfiniBand or RoCE exists, cards far from their GPUs, no GPUDirect."""

from collections import Counter
from collections.abc import Sequence

from traceanalyzer.doctor.case import Case, is_within_node, of
from traceanalyzer.doctor.diagnosis import Diagnosis
from traceanalyzer.doctor.nccl_log import Link, NcclLog

_RDMA_NAMES = ("mlx5", "mlx4", "bnxt_re", "irdma", "efa", "rdmap", "roce", "ib")


def sockets_across_nodes(case: Case) -> list[Diagnosis]:
    """TCP between nodes; harmless on one node."""
    made = []
    for log in case.logs:
        across = [link for link in log.links if link.kind == "NET/Socket" and not is_within_node(link, log)]
        is_socket = bool(across) or (not log.is_one_node and "Socket" in log.networks.values())
        if not is_socket:
            continue
        cards = _cards(case, log)
        off = (log.set_to("NCCL_IB_DISABLE") or "").upper() in {"1", "Y", "YES", "TRUE"}
        why = " NCCL_IB_DISABLE=1 asks for it." if off else ""
        made.append(
            Diagnosis(
                severity="high" if cards else "medium",
                diagnosis=f"Nodes talk over TCP sockets{of(log, case)}"
                + (
                    f", though the machine has {cards}.{why}"
                    if cards
                    else f".{why} No input tells of InfiniBand or RoCE."
                ),
                signal=f"{len(across)} connections between nodes via NET/Socket; NCCL uses the network "
                f"{', '.join(sorted(set(log.networks.values()))) or 'Socket'}; NET/IB found "
                f"{', '.join(sorted(set(log.ib_devices.values()) - {''})) or 'no device'}.",
                recommendation=("Remove NCCL_IB_DISABLE. " if off else "")
                + "Look first which cards and ports are up (ibv_devinfo, ibstat) and whether the container has them "
                "(/dev/infiniband, ulimit -l unlimited). Then name them with NCCL_IB_HCA. On RoCE look at the table of "
                "GIDs (show_gids) before setting NCCL_IB_GID_INDEX: the right row is RoCE v2 with the port's address.",
                caveat="Card names in a topology do not prove that their ports are up.",
            )
        )
    return made


def _cards(case: Case, log: NcclLog) -> str:
    found = ", ".join(sorted(set(log.ib_devices.values()) - {""}))
    if found or case.topology is None:
        return found
    names = [case.topology.name_of(nic) for nic in case.topology.nics]
    rdma = [name for name in names if any(part in name.lower() for part in _RDMA_NAMES)]
    return ", ".join(rdma)


def far_nic(case: Case) -> list[Diagnosis]:
    """GPUs whose nearest network card is on another NUMA node, or behind another host bridge."""
    if case.topology is None:
        return []
    nearest = case.topology.nearest_nics()
    far = {gpu: (path, nics) for gpu, (path, nics) in nearest.items() if path == "SYS"}
    if not far:
        return []
    crosses_nodes = any(not log.is_one_node for log in case.logs)
    told = "; ".join(
        f"{gpu}: {', '.join(case.topology.name_of(nic) for nic in nics)} at {path}" for gpu, (path, nics) in far.items()
    )
    return [
        Diagnosis(
            severity="medium" if crosses_nodes else "low",
            diagnosis=f"{', '.join(far)} {'has' if len(far) == 1 else 'have'} no network card near: traffic to other "
            "nodes crosses the link between NUMA nodes.",
            signal=f"Nearest cards: {told}.",
            recommendation="Give such ranks a GPU that has a card near, or move the card; NCCL picks the nearest of "
            "the "
            "cards that NCCL_IB_HCA leaves.",
            caveat="It matters for traffic between nodes only. GPUs joined by NVLink can send through a neighbour's "
            "card "
            "(PXN).",
        )
    ]


def no_gpudirect(case: Case) -> list[Diagnosis]:
    """InfiniBand or RoCE without GPUDirect RDMA."""
    made = []
    for log in case.logs:
        remote = [link for link in log.links if link.kind.startswith("NET/IB")]
        staged = [link for link in remote if not link.is_direct]
        if not staged:
            continue
        level = log.set_to("NCCL_NET_GDR_LEVEL")
        made.append(
            Diagnosis(
                severity="medium",
                diagnosis=f"Traffic between nodes is staged through host memory{of(log, case)}: no GPUDirect RDMA on "
                f"{len(staged)} of {len(remote)} connections.",
                signal=f"{_counted(staged)}; with GPUDirect they end in /GDRDMA"
                + (f"; NCCL_NET_GDR_LEVEL={level}." if level else "."),
                recommendation="Load nvidia-peermem (or use a kernel and driver with DMA-BUF), and see that the card "
                "is "
                "near enough: NCCL_NET_GDR_LEVEL says how far it may be.",
                caveat="For a card on another NUMA node staging can be the faster way.",
            )
        )
    return made


def _counted(links: Sequence[Link]) -> str:
    kinds = Counter(link.transport for link in links)
    return ", ".join(f"{count} × {kind}" for kind, count in kinds.most_common(4))
