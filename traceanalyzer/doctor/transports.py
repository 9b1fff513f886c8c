"""Rules about the transports between GPUs and nodes, and the job's wiring by topology and log."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.doctor.case import Case, Diagnosis, counted, gpus_of
from traceanalyzer.doctor.nccl_log import NcclLog
from traceanalyzer.doctor.topology import Topology, is_nvlink
from traceanalyzer.job.run_info import Wiring
from traceanalyzer.meaning.vocabulary import numbered

NVLINK_GB_PER_S = 25
"""Of one link in one direction, NVLink 2 to 4 (V100, A100, H100, H200; NVIDIA's data sheets); NVLink 5 carries 50."""

_PCIE = "32 GB/s a direction on PCIe 4.0 x16 and 64 GB/s on 5.0"


def suspected_p2p_failure(log: NcclLog, case: Case) -> Iterator[Diagnosis]:
    """P2P over SYS, or without NVLink as far as is known, and a log that stops."""
    stall, within = _stall(log, case), log.within_node()
    if stall is None or not within["P2P"]:
        return
    known = {pair: path for link in log.links
             if case.topology and link.kind == "P2P" and (pair := gpus_of(link, log, case.topology))
             and (path := case.topology.path(*pair))}  # fmt: skip
    far = sorted(f"{min(pair)}-{max(pair)}" for pair, path in known.items() if path == "SYS")
    transports = ", ".join(dict.fromkeys(link.transport for link in log.links if link.kind == "P2P"))
    if far and len(far) == len(known):
        yield Diagnosis(
            severity="high",
            diagnosis="Suspected P2P failure: NCCL sends directly between GPUs whose only path "
            "crosses the CPUs' interconnect (SYS), and the job stops there.",
            signal=f"{', '.join(dict.fromkeys(far))} joined by SYS only; {within['P2P']} connections via "
            f"{transports}; {stall}. Such access is often set up without an error and then delivers no data.",
            recommendation=_TEST_P2P,
            caveat="A suspicion, not a proof: a missing rank, or a crash, stops a log at the same place. "
            "Do not set NCCL_P2P_DISABLE=1 pre-emptively or for good: it costs bandwidth wherever P2P works.",
        )
        return
    if case.standing is not None and (case.standing.absences or case.standing.mismatches):
        return  # the dumps say why it stops
    paths = [*known.values(), *(path for _, _, path in log.facts["ring_graph"].values())]
    has_nvlink = any(map(is_nvlink, paths)) or any(log.facts["nvls"].values()) or bool(log.facts["nvl_domain"])
    if set(within) == {"P2P"} and not has_nvlink and (log.watchdog or not log.has_more):
        yield Diagnosis(
            severity="medium" if log.watchdog else "low",
            diagnosis="The log stops after P2P connections: suspect the P2P path if the job hangs.",
            signal=f"{within['P2P']} connections via {transports} and none by another transport; {stall}. Over "
            "PCIe, P2P can be set up without an error and then deliver nothing.",
            recommendation=("" if case.topology else "Give `nvidia-smi topo -m` (--topo). ") + _TEST_P2P,
            caveat="Low confidence: a log without later lines looks the same in a job that goes on.",
        )


_TEST_P2P = (
    "Test: run once with NCCL_P2P_DISABLE=1 (on one node NCCL then uses shared memory, SHM). If that runs, P2P is the "
    "cause: check ACS on the PCIe bridges (`lspci -vvv | grep ACSCtl`) and the IOMMU (`dmesg | grep -i iommu`), which "
    "redirect peer traffic; in virtual machines ask the host's administrator. `nvidia-smi topo -p2p r` shows whether "
    "P2P works."
)


def _stall(log: NcclLog, case: Case) -> str | None:
    """By what the log shows that the job stopped; `None` when it ended in order."""
    world = [member for member in log.members if member.size == log.world]
    if given_up := [one for one in log.watchdog.progress if one.timed_out is not None]:
        return f"PyTorch's watchdog gave up collective {given_up[0].timed_out} on rank {given_up[0].rank}"
    if case.recorder is not None and (case.recorder.entries["state"] != "completed").any():
        return "the flight recorder has collectives that never completed"
    if unfinished := [member.rank for member in world if member.is_unfinished]:
        return f"init never completes on {numbered('rank', unfinished)}"
    if any(member.closed_by == "Destroy" for member in log.members):
        return None
    if unconnected := {link.process for link in log.links} - log.facts["connected"].keys():
        ranks = log.ranks_of(unconnected)
        who = f" on {numbered('rank', ranks)}" if ranks else ""
        return f"the log stops after the P2P connections{who}: no 'Connected all rings' follows"
    return "the log stops after connecting: no communicator is ever closed, and nothing says that a collective ended"


def p2p_off(log: NcclLog, case: Case) -> Iterator[Diagnosis]:
    """P2P switched off by the environment: what NCCL uses instead, and what that costs."""
    setting = _p2p_setting(log)
    if setting is None:
        return
    within = log.within_node()
    instead = _instead(within, log)
    yield Diagnosis(
        severity="high" if _links_between_gpus(case.topology) else "medium",
        diagnosis=f"P2P is switched off by the environment. {instead} {_cost(case)}",
        signal=f"{setting} in the log; connections on one node: {counted(within) or 'unknown'}"
        + (f"; {count} channels for collectives" if (count := log.coll_channels()) is not None else "")
        + ".",
    )


def p2p_refused(log: NcclLog) -> Iterator[Diagnosis]:
    """P2P that the driver refuses between GPUs of a machine, and what NCCL uses instead."""
    within = log.within_node()
    if not log.p2p_disabled_pairs or _p2p_setting(log) is not None:
        return
    pairs = [" ".join(text.split("GPUs ")[-1].split()[:3]).strip(".") for text in log.p2p_disabled_pairs]
    yield Diagnosis(
        severity="medium" if set(within) - {"P2P"} else "low",
        diagnosis=f"P2P is disabled between connected GPUs: NCCL uses {counted(within) if within else 'another path'}.",
        signal=f"The driver refuses it: GPUs {', '.join(pairs[:8])}. {_instead(within, log)}",
    )


def slow_links(case: Case) -> Iterator[Diagnosis]:
    """GPUs whose links are narrower than those of most other GPUs: by NCCL's topology, nvidia-smi's, and its links."""
    tables: list[tuple[str, str, str, Mapping[str, float]]] = [
        (kind, f" on {host}" * bool(host), "GB/s", rates)
        for log in case.logs for (host, kind), rates in log.link_gb_per_s.items()
    ]  # fmt: skip
    if case.topology is not None:
        tables.append(("NVL", "", "links", case.topology.nvlinks_of_gpus()))
    tables.append(("NVL", "", "active links", case.nvlinks))
    for kind, host, unit, rates in tables:
        best = max(rates.values(), default=0)
        slow = {gpu: rate for gpu, rate in rates.items() if rate < best}
        if slow and (len(slow) < SHARE * len(rates) or unit == "GB/s"):
            shown = ", ".join(f"{gpu if gpu.startswith('GPU') else f'GPU {gpu}'} {rate:g}"
                              for gpu, rate in list(slow.items())[:8])  # fmt: skip
            yield Diagnosis(
                severity="low" if kind == "PCI" else "high",
                diagnosis=f"{_KINDS.get(kind, kind)} of {len(slow)} of {len(rates)} GPUs is narrower{host}: {shown} "
                f"{unit}, where others have {best:g}.",
                recommendation="Check `nvidia-smi nvlink -s` and `-e` for links that are down."
                if kind != "PCI"
                else "Check `nvidia-smi -q | grep -A9 'GPU Link Info'` for width and generation, and the slot.",
            )


_KINDS = {"NVL": "NVLink", "PCI": "PCIe"}


def mnnvl_unused(log: NcclLog) -> Iterator[Diagnosis]:
    """Hosts of one NVLink domain (GB200 NVL72) between which NCCL uses the network."""
    domains: dict[tuple[str, ...], set[str]] = {}
    for (host, _), (uuid, *clique, state) in log.facts["fabric"].items():
        if state == _FABRIC_READY and uuid.strip("0."):
            domains.setdefault((uuid, *clique), set()).add(host)
    hosts = max(domains.values(), key=len, default=set())
    across = Counter(
        link.kind
        for link in log.links
        if link.kind.startswith("NET") and {one.process[0] for one in log.ends(link)} <= hosts
    )
    if len(hosts) > 1 and across and not log.facts["nvl_domain"]:
        yield Diagnosis(
            diagnosis=f"{len(hosts)} hosts share an NVLink domain, yet NCCL joins them by {counted(across)}"
            f": multi-node NVLink (MNNVL) is off.",
            signal=f"{', '.join(sorted(hosts)[:8])} report one fabric UUID and clique; no communicator has MNNVL 1.",
        )


_FABRIC_READY = "3"
"""`NVML_GPU_FABRIC_STATE_COMPLETED`."""


def _p2p_setting(log: NcclLog) -> str | None:
    if log.is_on("NCCL_P2P_DISABLE"):
        return f"NCCL_P2P_DISABLE={log.set_to('NCCL_P2P_DISABLE')}"
    level = log.set_to("NCCL_P2P_LEVEL") or ""
    return f"NCCL_P2P_LEVEL={level}" if level.upper() in {"LOC", "0"} else None


def _instead(within: Counter[str], log: NcclLog) -> str:
    if within["SHM"]:
        return "On one node NCCL goes through shared memory (SHM) instead: every byte crosses PCIe twice."
    if any(kind.startswith("NET") for kind in within):
        off = " (SHM is switched off too)" if log.is_on("NCCL_SHM_DISABLE") else ""
        return f"Ranks of one node talk over the network instead{off}: slower still than shared memory."
    return "On one node NCCL goes through shared memory (SHM) then, and over the network only when SHM is off too."


def _cost(case: Case) -> str:
    """What of the links is lost, by the topology."""
    if links := _links_between_gpus(case.topology):
        return (
            f"That leaves {links} NVLinks between two GPUs unused, {links * NVLINK_GB_PER_S} GB/s a direction or more, "
            f"for what PCIe carries: at most {_PCIE}."
        )
    return "How much that costs depends on the path that P2P would have taken, which is unknown."


def shm_off(log: NcclLog) -> Iterator[Diagnosis]:
    """Shared memory switched off by the environment, or not everywhere."""
    if not log.is_on("NCCL_SHM_DISABLE"):
        return
    within = log.within_node()
    uses_net = any(kind.startswith("NET") for kind in within)
    setting = f"NCCL_SHM_DISABLE={log.set_to('NCCL_SHM_DISABLE')}"
    who = sum(len(who) for (name, _), who in log.environment.items() if name == "NCCL_SHM_DISABLE")
    yield Diagnosis(
        severity="medium" if uses_net or within["SHM"] else "low",
        diagnosis=f"{setting} is set, yet {within['SHM']} connections use shared memory (SHM)."
        if within["SHM"]
        else f"Shared memory is switched off by the environment: ranks of one node that have no "
        f"P2P talk over the network{', and they do here' if uses_net else ''}.",
        signal=f"{setting} on {who} of {len(log.last_texts)} processes; connections on one node: "
        f"{counted(within) or 'unknown'}.",
        recommendation="Set it on all ranks, or remove it; a log of two runs shows both."
        if within["SHM"]
        else "Remove NCCL_SHM_DISABLE; in containers give /dev/shm room (--shm-size, --ipc=host).",
    )


def nvlink_unused(log: NcclLog, topology: Topology) -> Iterator[Diagnosis]:
    """NVLink between two GPUs, and another transport in the log, without a setting that asks for it."""
    joined = {
        (link, pair) for link in log.links
        if (pair := gpus_of(link, log, topology)) is not None and is_nvlink(topology.path(*pair))
    }  # fmt: skip
    other = Counter(link.kind for link, _ in joined if link.kind not in {"P2P", "NVLS"})
    if not other or _p2p_setting(log) is not None:
        return
    pairs = sorted({f"{min(pair)}-{max(pair)}" for link, pair in joined if link.kind not in {"P2P", "NVLS"}})
    refused = f" NCCL prints: {next(iter(log.p2p_disabled_pairs))}" if log.p2p_disabled_pairs else ""
    yield Diagnosis(
        diagnosis=f"NVLink is there but not used: NCCL joins GPUs that NVLink joins by {' and '.join(other)}.{refused}",
        signal=f"{', '.join(pairs[:8])}{' and more' if len(pairs) > 8 else ''} have NVLinks in the topology; "
        f"{counted(other)} between them in the log.",
    )


def few_channels(log: NcclLog, case: Case) -> Iterator[Diagnosis]:
    """Fewer channels than the NVLinks between two GPUs allow."""
    links = _links_between_gpus(case.topology)
    channels = log.coll_channels()
    limits = {name: value for (name, value) in log.environment if name in _LIMITS}
    uses_nvlink = log.kinds()["P2P"] > 0
    if channels is None or not uses_nvlink or not log.is_one_node or not links or channels * 2 >= links:
        return
    limit = ", ".join(f"{name}={value}" for name, value in limits.items())
    yield Diagnosis(
        diagnosis=f"NCCL uses {channels} channels over {links} NVLinks: too few to fill them"
        + (f", as {limit} asks." if limit else "."),
        signal=f"{channels} channels for collectives; {links} NVLinks between two GPUs.",
        recommendation=f"Remove {' and '.join(limits)}."
        if limits
        else "See whether NCCL_MAX_NCHANNELS, "
        "NCCL_MAX_CTAS or the communicator's configuration (max_ctas) limits them.",
    )


_LIMITS = {"NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS", "NCCL_NCHANNELS_PER_NET_PEER"}


def _links_between_gpus(topology: Topology | None) -> int:
    """The fewest NVLinks between any two GPUs; 0 when some pair has none, or no topology is known."""
    if topology is None:
        return 0
    paths = list(topology.gpu_pairs().values())
    return min((int(path[2:]) if is_nvlink(path) else 0 for path in paths), default=0)


_RDMA_NAMES = ("mlx5", "mlx4", "bnxt_re", "irdma", "efa", "rdmap", "roce", "ib")


def sockets_across_nodes(log: NcclLog, case: Case) -> Iterator[Diagnosis]:
    """TCP between nodes; harmless on one node."""
    across = [link for link in log.links if link.kind == "NET/Socket" and not log.is_within_node(link)]
    networks = set(log.facts["network"].values())
    if not across and (log.is_one_node or "Socket" not in networks):
        return
    cards = _cards(case, log)
    off = log.is_on("NCCL_IB_DISABLE")
    why = " NCCL_IB_DISABLE=1 asks for it." if off else ""
    yield Diagnosis(
        severity="high" if cards else "medium",
        diagnosis="Nodes talk over TCP sockets"
        + (f", though the machine has {cards}.{why}" if cards else f".{why} No input mentions InfiniBand or RoCE."),
        signal=f"{len(across)} connections between nodes via NET/Socket; NCCL uses the network "
        f"{', '.join(sorted(networks)) or 'Socket'}; NET/IB found {_devices(log) or 'no device'}.",
        recommendation=("Remove NCCL_IB_DISABLE. " if off else "")
        + "Look first which cards and ports are up (ibv_devinfo, ibstat) and whether the container has them "
        "(/dev/infiniband, ulimit -l unlimited). Then name them with NCCL_IB_HCA. On RoCE look at the table of "
        "GIDs (show_gids) before setting NCCL_IB_GID_INDEX: the right row is RoCE v2 with the port's address.",
    )


def _cards(case: Case, log: NcclLog) -> str:
    names = [case.topology.name_of(nic) for nic in case.topology.nics] if case.topology else []
    return _devices(log) or ", ".join(name for name in names if any(part in name.lower() for part in _RDMA_NAMES))


def _devices(log: NcclLog) -> str:
    return ", ".join(sorted(set(log.facts["ib_devices"].values()) - {""}))


def no_gpudirect(log: NcclLog) -> Iterator[Diagnosis]:
    """InfiniBand or RoCE without GPUDirect RDMA."""
    remote = [link for link in log.links if link.kind.startswith("NET/IB")]
    staged = Counter(link.transport for link in remote if not link.is_direct)
    level = log.set_to("NCCL_NET_GDR_LEVEL")
    if staged:
        yield Diagnosis(
            diagnosis=f"Traffic between nodes is staged through host memory: no GPUDirect RDMA on "
            f"{staged.total()} of {len(remote)} connections.",
            signal=f"{counted(staged)}; with GPUDirect they end in /GDRDMA"
            f"{f'; NCCL_NET_GDR_LEVEL={level}' if level else ''}.",
        )


def wiring(topology: Topology | None, logs: Sequence[NcclLog]) -> Wiring | None:
    """What they tell of the job's ranks; of several jobs' logs the largest job's. `None` of nothing."""
    if topology is None and not logs:
        return None
    log = max(logs, key=lambda one: one.world, default=None)
    paths = {} if topology is None else {
        (int(one[3:]), int(other[3:])): path for (one, other), path in topology.gpu_pairs().items()
    }  # fmt: skip
    if log is None:
        return Wiring(paths)
    members = [(rank, member) for member in log.members if (rank := log.ranks.get(member.process)) is not None]
    return Wiring(
        paths,
        {rank: member.gpu for rank, member in members if member.gpu is not None},
        {rank: member.process[0] for rank, member in members},
        _transports(log),
    )


def _transports(log: NcclLog) -> dict[tuple[int, int], Counter[str]]:
    """By two ranks of the job the transports of their connections, each channel of a communicator once."""
    channels: dict[tuple[int, int], set[tuple[str, str | None, int]]] = {}
    for link in log.links:
        known = [log.ranks.get(member.process) for member in log.ends(link)]
        ends = sorted({rank for rank in known if rank is not None} if link.communicator else {link.source, link.target})
        if len(ends) == 2:  # a communicator that is not named is the job's
            channels.setdefault((ends[0], ends[1]), set()).add((link.transport, link.communicator, link.channel))
    return {pair: Counter(name for name, _, _ in found) for pair, found in channels.items()}
