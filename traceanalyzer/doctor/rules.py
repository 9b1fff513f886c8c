"""Rules about a job's log and topology: messages, versions, init, settings, the transports between GPUs and nodes."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from traceanalyzer.analyses.statistics import SHARE
from traceanalyzer.doctor.knowledge import KNOWLEDGE, Case, Facts, Known, by_value, known_error
from traceanalyzer.doctor.nccl_log import Link, Member, NcclLog, Process
from traceanalyzer.doctor.topology import Topology
from traceanalyzer.job.run_info import Wiring, nvlinks
from traceanalyzer.meaning.vocabulary import first_upper, numbered


def warnings(log: NcclLog) -> Iterator[Facts]:
    """What was warned of: each known kind with its meaning, then all the rest together."""
    by_kind: dict[int, list[tuple[re.Match[str], str, Sequence[Process]]]] = {}
    rest = {}
    for text, who in log.warnings.items():
        if found := known_error(text):
            by_kind.setdefault(found[0], []).append((found[1], text, who))
        else:
            rest[text] = who
    yield from (_known(KNOWLEDGE.messages[number], own, log) for number, own in sorted(by_kind.items()))
    if rest:
        ranks = log.ranks_of(process for who in rest.values() for process in who)
        first = max(rest, key=lambda text: len(rest[text]))
        yield {"known": None, "first": first, "texts": rest, "count": sum(map(len, rest.values())), "ranks": ranks}


def _known(known: Known, found: Sequence[tuple[re.Match[str], str, Sequence[Process]]], log: NcclLog) -> Facts:
    values = {name: list(dict.fromkeys(value.strip() for match, _, _ in found if (value := match[name])))
              for name in found[0][0].re.groupindex}  # fmt: skip
    codes = values.get("status", [])
    values["status"] = [f"{KNOWLEDGE.ib_status.get(code, 'status')} ({code})" for code in codes]
    values["xid"] = [f"{code} ({KNOWLEDGE.xid.get(code, 'see the catalog')})" for code in values.get("xid", [])]
    texts = {name: " and ".join(own[:3]) for name, own in values.items()}
    interfaces = sorted(set(log.facts["interface"].values()))
    settings = ", ".join(f"{name}={value}" for name in known.settings if (value := log.set_to(name)) is not None)
    texts["settings"] = f"through {' or '.join(interfaces)} " * bool(interfaces) + f"({settings})" * bool(settings)
    who = [process for _, _, own in found for process in own]
    ranks = {number for host, number in who if not host and number >= 0} | set(log.ranks_of(who))
    texts["who"] = first_upper(numbered("rank", ranks)) if ranks else "A rank"
    headline = " ".join(known.headline.format(**texts).split()).replace(" :", ":").strip(": ")
    return {
        "known": known,
        "is_flushed": bool(codes) and set(codes) <= {"5"},
        "headline": headline,
        "why": known.why.format(**texts),
        "place": [f"{name} {texts[name]}" for name in ("peer", "hca", "gid")
                  if texts.get(name) and texts[name] not in headline],
        "count": len(who),
        "texts": {text: own for _, text, own in found},
        "ranks": sorted(ranks),
    }  # fmt: skip


def mixed_versions(case: Case) -> Iterator[Facts]:
    """Ranks of one job with different versions of NCCL, by its log, else by the flight recorder's dumps."""
    sources: list[Mapping[Any, str]] = [
        {log.ranks.get(process, "{}:{}".format(*process)): version for process, version in log.facts["nccl"].items()}
        for log in case.logs
    ]
    sources += [case.recorder.library_versions] if case.recorder else []
    for versions in [by_version for source in sources if len(by_version := by_value(source)) > 1][:1]:
        who = {version: [one for one in own if isinstance(one, int)] for version, own in versions.items()}
        places = {version: numbered("rank", ranks) if ranks else ", ".join(map(str, versions[version][:4]))
                  for version, ranks in who.items()}  # fmt: skip
        yield {"places": places, "ranks": min(who.values(), key=len)}


def init_incomplete(log: NcclLog) -> Iterator[Facts]:
    """Ranks that began to make a communicator and never finished, or that no log mentions."""
    by_communicator: dict[str, list[Member]] = {}
    for member in log.members:
        by_communicator.setdefault(member.communicator, []).append(member)
    for members in by_communicator.values():
        if unfinished := [one for one in members if one.is_unfinished]:
            absent = sorted(set(range(members[0].size)) - {member.rank for member in members})
            last = Counter(log.last_texts.get(member.process, "") for member in unfinished).most_common(1)[0][0]
            who = [member.rank for member in unfinished]
            yield {"first": members[0], "who": who, "absent": absent, "last": last, "ranks": absent or who}


def wrong_values(log: NcclLog) -> list[Facts]:
    """Results that nccl-tests found wrong."""
    return [{}] if log.wrong_values else []


_REPORTED = {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}
"""By other rules."""
_OF_NODE = {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_TOPO_FILE", "NCCL_DEBUG_FILE"}
"""May rightly differ between nodes."""


def settings(log: NcclLog) -> Iterator[Facts]:
    """Variables in the environment that change what NCCL does, and that no other rule reports."""
    known = [one for one in sorted(log.environment) if one[0] in KNOWLEDGE.settings]
    values = Counter(name for name, _ in known)
    uneven = [name for name, own in values.items() if own > 1 and name not in _OF_NODE]
    shown = [f"{name}={value} ({KNOWLEDGE.settings[name]})" for name, value in known if name not in _REPORTED]
    if shown or uneven:
        yield {"shown": shown, "uneven": uneven}


def log_in_words(log: NcclLog) -> Iterator[Facts]:
    """What a log tells that is in order."""
    facts = log.facts
    versions = sorted(set(facts["nccl"].values()))
    if versions or log.nccl_lines or log.test_gb_per_s:
        world = [member for member in log.members if member.size == log.world]
        complete = [member for member in world if member.is_complete]
        rings = [facts[name].values() for name in ("ring_channels", "ring_gb_per_s", "ring_path")]
        transports = Counter(link.transport for link in log.links)
        yield {
            "versions": versions,
            "complete": len(complete),
            "times": sorted(member.init_s for member in world if member.init_s is not None),
            "transports": ", ".join(f"{count} connections via {name}" for name, count in transports.most_common(4)),
            "rings": "; ".join(sorted({f"rings of {count} channels at {float(rate):g} GB/s over {path}"
                                       for count, rate, path in zip(*rings, strict=True)})),
            "domains": "; ".join(f"NVLink domain of {gpus} GPUs (MNNVL)"
                                 for gpus in sorted(set(facts["nvl_domain"].values()))),
            "tested": max(log.test_gb_per_s.items(), key=lambda one: one[1], default=None),
            "is_fine": complete and len(complete) == len(world) and not log.warnings and len(versions) == 1,
            "is_closed": any(member.closed_by == "Destroy" for member in world),
        }  # fmt: skip


def suspected_p2p_failure(log: NcclLog, case: Case) -> Iterator[Facts]:
    """P2P over SYS, or without NVLink as far as is known, and a log that stops."""
    stall, within = _stall(log, case), log.within_node()
    if stall is None or not within["P2P"]:
        return
    known = {pair: path for link in log.links
             if case.topology and link.kind == "P2P" and (pair := gpus_of(link, log, case.topology))
             and (path := case.topology.path(*pair))}  # fmt: skip
    far = {pair for pair, path in known.items() if path == "SYS"}
    is_explained = case.recorder is not None and (case.recorder.absences or case.recorder.mismatches)
    paths = [*known.values(), *log.facts["ring_path"].values()]
    has_nvlink = any(path.startswith("NV") for path in paths) or log.has_nvls or log.facts["nvl_domain"]
    is_over_sys = bool(far) and len(far) == len(known)
    is_over_pcie = set(within) == {"P2P"} and not has_nvlink and (log.watchdog or not log.has_more)
    if is_over_sys or (is_over_pcie and not is_explained):
        yield {
            "far": sorted({f"{min(pair)}-{max(pair)}" for pair in far}) if is_over_sys else [],
            "count": within["P2P"],
            "transports": dict.fromkeys(link.transport for link in log.links if link.kind == "P2P"),
            "stall": stall,
        }


def _stall(log: NcclLog, case: Case) -> str | None:
    """By what the log shows that the job stopped; `None` when it ended in order."""
    if given_up := [one for one in log.watchdog.progress if one.timed_out is not None]:
        return f"PyTorch's watchdog gave up collective {given_up[0].timed_out} on rank {given_up[0].rank}"
    if case.recorder is not None and (case.recorder.entries["state"] != "completed").any():
        return "the flight recorder has collectives that never completed"
    if unfinished := [member.rank for member in log.members if member.size == log.world and member.is_unfinished]:
        return f"init never completes on {numbered('rank', unfinished)}"
    if any(member.closed_by == "Destroy" for member in log.members):
        return None
    if unconnected := {link.process for link in log.links} - log.facts["connected"].keys():
        ranks = log.ranks_of(unconnected)
        who = f" on {numbered('rank', ranks)}" if ranks else ""
        return f"the log stops after the P2P connections{who}: no 'Connected all rings' follows"
    return "the log stops after connecting: no communicator is ever closed, and nothing says that a collective ended"


def p2p_off(log: NcclLog, case: Case) -> Iterator[Facts]:
    """P2P switched off by the environment: what NCCL uses instead, and what that costs."""
    if setting := _p2p_setting(log):
        links = case.topology.links_between_gpus if case.topology else 0
        yield {"setting": setting, "within": log.within_node(), "links": links}


def p2p_refused(log: NcclLog) -> Iterator[Facts]:
    """P2P that the driver refuses between GPUs of a machine, and what NCCL uses instead."""
    if log.p2p_disabled_pairs and _p2p_setting(log) is None:
        pairs = [" ".join(text.split("GPUs ")[-1].split()[:3]).strip(".") for text in log.p2p_disabled_pairs]
        yield {"pairs": pairs, "within": log.within_node()}


def slow_links(case: Case) -> Iterator[Facts]:
    """GPUs whose links are narrower than those of most other GPUs: by NCCL's topology, nvidia-smi's, and its links."""
    tables: list[tuple[str, str, str, Mapping[str, float]]] = [
        (kind, host, "GB/s", rates) for log in case.logs for (host, kind), rates in log.link_gb_per_s.items()
    ]
    if case.topology is not None:
        tables.append(("NVL", "", "links", case.topology.nvlinks_of_gpus()))
    tables.append(("NVL", "", "active links", case.nvlinks))
    for kind, host, unit, rates in tables:
        best = max(rates.values(), default=0)
        slow = {gpu: rate for gpu, rate in rates.items() if rate < best}
        if slow and (len(slow) < SHARE * len(rates) or unit == "GB/s"):
            yield {"kind": kind, "host": host, "unit": unit, "slow": slow, "gpus": len(rates), "best": best}


_READY = re.compile(r"(\S+) cliqueId (\w+) state 3")
"""`NVML_GPU_FABRIC_STATE_COMPLETED`."""


def mnnvl_unused(log: NcclLog) -> Iterator[Facts]:
    """Hosts of one NVLink domain (GB200 NVL72) between which NCCL uses the network."""
    domains: dict[tuple[str, ...], set[str]] = {}
    for (host, _), fabric in log.facts["fabric"].items():
        if (found := _READY.fullmatch(fabric)) and found[1].strip("0."):
            domains.setdefault(found.groups(), set()).add(host)
    hosts = max(domains.values(), key=len, default=set())
    across = [
        link.kind
        for link in log.links
        if link.kind.startswith("NET") and {one.process[0] for one in log.ends(link)} <= hosts
    ]
    if len(hosts) > 1 and across and not log.facts["nvl_domain"]:
        yield {"hosts": sorted(hosts), "across": across}


def _p2p_setting(log: NcclLog) -> str | None:
    if log.is_on("NCCL_P2P_DISABLE"):
        return f"NCCL_P2P_DISABLE={log.set_to('NCCL_P2P_DISABLE')}"
    level = log.set_to("NCCL_P2P_LEVEL") or ""
    return f"NCCL_P2P_LEVEL={level}" if level.upper() in {"LOC", "0"} else None


def shm_off(log: NcclLog) -> Iterator[Facts]:
    """Shared memory switched off by the environment, or not everywhere."""
    if log.is_on("NCCL_SHM_DISABLE"):
        who = sum(len(who) for (name, _), who in log.environment.items() if name == "NCCL_SHM_DISABLE")
        within = log.within_node()
        uses_net = any(kind.startswith("NET") for kind in within)
        yield {"value": log.set_to("NCCL_SHM_DISABLE"), "within": within, "uses_net": uses_net, "who": who}


def nvlink_unused(log: NcclLog, topology: Topology) -> Iterator[Facts]:
    """NVLink between two GPUs, and another transport in the log, without a setting that asks for it."""
    joined = dict.fromkeys(
        (link, pair) for link in log.links
        if (pair := gpus_of(link, log, topology)) is not None and nvlinks(topology.path(*pair))
        and link.kind not in {"P2P", "NVLS"}
    )  # fmt: skip
    if joined and _p2p_setting(log) is None:
        pairs = sorted({f"{min(pair)}-{max(pair)}" for _, pair in joined})
        yield {"other": Counter(link.kind for link, _ in joined), "pairs": pairs}


_LIMITS = {"NCCL_MAX_NCHANNELS", "NCCL_MAX_CTAS", "NCCL_MAX_NRINGS", "NCCL_NCHANNELS_PER_NET_PEER"}


def few_channels(log: NcclLog, topology: Topology) -> Iterator[Facts]:
    """Fewer channels than the NVLinks between two GPUs allow."""
    links, channels = topology.links_between_gpus, log.coll_channels()
    if channels is not None and channels * 2 < links and log.is_one_node and log.kinds()["P2P"]:
        limits = {name: value for name, value in log.environment if name in _LIMITS}
        yield {"links": links, "channels": channels, "limits": limits}


_RDMA_NAMES = ("mlx5", "mlx4", "bnxt_re", "irdma", "efa", "rdmap", "roce", "ib")


def sockets_across_nodes(log: NcclLog, case: Case) -> Iterator[Facts]:
    """TCP between nodes; harmless on one node."""
    across = [link for link in log.links if link.kind == "NET/Socket" and not log.is_within_node(link)]
    networks = sorted(set(log.facts["network"].values()))
    if across or (not log.is_one_node and "Socket" in networks):
        nics = [case.topology.name_of(nic) for nic in case.topology.nics] if case.topology else []
        named = [name for name in nics if any(part in name.lower() for part in _RDMA_NAMES)]
        is_off = log.is_on("NCCL_IB_DISABLE")
        yield {"across": across, "networks": networks, "cards": log.ib_devices or named, "is_off": is_off}


def no_gpudirect(log: NcclLog) -> Iterator[Facts]:
    """InfiniBand or RoCE without GPUDirect RDMA."""
    remote = [link for link in log.links if link.kind.startswith("NET/IB")]
    if staged := [link.transport for link in remote if not link.is_direct]:
        yield {"staged": staged, "remote": remote, "level": log.set_to("NCCL_NET_GDR_LEVEL")}


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


def gpus_of(link: Link, log: NcclLog, topology: Topology) -> tuple[str, str] | None:
    """The two GPUs that a connection joins, as the topology names them; `None` when the log does not tell."""
    ends = log.ends(link)
    numbers: list[int | None] = []
    if ends and ends[0].process[0] == ends[1].process[0]:
        numbers = [one.device if one.gpu is None else one.gpu for one in ends]
    elif log.is_one_node and log.world <= len(topology.gpus):
        numbers = [link.source, link.target]
    names = [f"GPU{number}" for number in numbers if number is not None]
    return (names[0], names[1]) if len(names) == 2 and set(names) <= set(topology.gpus) else None
