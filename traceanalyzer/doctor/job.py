"""Rules about a job's log: versions, init, settings, and what is in order."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from traceanalyzer.doctor.case import Case, Facts, by_value
from traceanalyzer.doctor.nccl_log import Member, NcclLog
from traceanalyzer.doctor.words import KNOWLEDGE
from traceanalyzer.meaning.vocabulary import numbered

SETTINGS = KNOWLEDGE.settings
"""Variables that change what NCCL does, and what each changes."""


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
    known = [one for one in sorted(log.environment) if one[0] in SETTINGS]
    values = Counter(name for name, _ in known)
    uneven = [name for name, own in values.items() if own > 1 and name not in _OF_NODE]
    shown = [f"{name}={value} ({SETTINGS[name]})" for name, value in known if name not in _REPORTED]
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
