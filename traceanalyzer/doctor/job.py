"""Rules about a job's log: versions, init, warnings, settings, and what is in order."""

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TypeVar

from traceanalyzer.doctor.case import Case, Diagnosis, of
from traceanalyzer.doctor.known_errors import KNOWLEDGE
from traceanalyzer.doctor.nccl_log import Member, NcclLog
from traceanalyzer.meaning.columns import size_text
from traceanalyzer.meaning.vocabulary import numbered

T = TypeVar("T")

SETTINGS = KNOWLEDGE.settings
"""Variables that change what NCCL does, and what each changes."""


def mixed_versions(case: Case) -> list[Diagnosis]:
    """Ranks of one job with different versions of NCCL, by its log, else by the flight recorder's dumps."""
    made = []
    for log in case.logs:
        by_version = _by_version(log.versions)
        if len(by_version) > 1:
            rarest = min(by_version, key=lambda version: len(by_version[version]))
            hosts = sorted({host for host, _ in by_version[rarest]})
            counts = "; ".join(f"{version}: {len(who)} processes" for version, who in by_version.items())
            signal = f"{counts}; {rarest} on {', '.join(hosts[:4])}{' and more' if len(hosts) > 4 else ''}."
            made.append(_mixed(by_version, signal, log.ranks_of(by_version[rarest]), of(log, case)))
    by_rank = _by_version(case.recorder.library_versions) if case.recorder and not made else {}
    if len(by_rank) > 1:
        signal = "; ".join(f"{version} on {numbered('rank', ranks)}" for version, ranks in by_rank.items())
        made.append(_mixed(by_rank, f"{signal}.", min(by_rank.values(), key=len), " by their dumps"))
    return made


def _by_version(versions: Mapping[T, str]) -> dict[str, list[T]]:
    found: dict[str, list[T]] = defaultdict(list)
    for who, version in versions.items():
        found[version].append(who)
    return found


def _mixed(versions: Iterable[str], signal: str, ranks: Sequence[int], whose: str) -> Diagnosis:
    return Diagnosis(
        diagnosis=f"Ranks run different versions of NCCL{whose}: {', '.join(sorted(versions))}. "
        "They may hang, crash or silently disagree.",
        signal=signal,
        ranks=tuple(ranks),
    )


def init_incomplete(log: NcclLog, case: Case) -> Iterator[Diagnosis]:
    """Ranks that began to make a communicator and never finished, or that no log mentions."""
    by_communicator: dict[str, list[Member]] = defaultdict(list)
    for member in log.members:
        by_communicator[member.communicator].append(member)
    for communicator, members in by_communicator.items():
        unfinished = [one for one in members if one.has_started and not (one.is_complete or one.is_closed)]
        if unfinished:
            absent = sorted(set(range(members[0].size)) - {member.rank for member in members})
            yield _incomplete(case, log, communicator, members, unfinished, absent)


def _incomplete(
    case: Case, log: NcclLog, communicator: str, members: list[Member], unfinished: list[Member], absent: list[int]
) -> Diagnosis:  # fmt: skip
    size = members[0].size
    stuck = numbered("rank", [member.rank for member in unfinished])
    last = Counter(log.last_texts.get(member.process, "") for member in unfinished).most_common(1)[0][0]
    never = (
        f" {numbered('rank', absent).capitalize()} of {size} never began: the others wait for "
        f"{'it' if len(absent) == 1 else 'them'}."
        if absent
        else ""
    )
    return Diagnosis(
        diagnosis=f"Init of a communicator of {size} ranks never ends{of(log, case)} on {stuck}.{never}",
        signal=f"Init START without Init COMPLETE in communicator {communicator} on {stuck}"
        + (f"; no line of {numbered('rank', absent)}" if absent else "")
        + f"; last line: {last[:160]}",
        recommendation=(
            f"Look at {numbered('rank', absent)}: not started, crashed before, or unable to reach the first rank's "
            f"address."
            if absent
            else "Look whether all ranks can reach each other (NCCL_SOCKET_IFNAME names the interface; firewalls), "
            "and at "
            "the warnings."
        ),
        caveat="The log may have been cut, or lack the files of some ranks."
        if absent
        else "The log may have been cut.",
        ranks=tuple(absent) or tuple(member.rank for member in unfinished),
    )


def wrong_values(log: NcclLog, case: Case) -> Iterator[Diagnosis]:
    """Results that nccl-tests found wrong."""
    if log.wrong_values:
        yield Diagnosis(f"nccl-tests found {log.wrong_values} wrong values{of(log, case)}: data is corrupted.")


def settings(log: NcclLog, case: Case) -> Iterator[Diagnosis]:
    """Variables in the environment that change what NCCL does, and that no other rule speaks of."""
    spoken_of = {"NCCL_P2P_DISABLE", "NCCL_SHM_DISABLE"}
    told = sorted({(name, value) for name, value in log.environment if name in SETTINGS and name not in spoken_of})
    uneven = _uneven(log)
    if not told and not uneven:
        return
    yield Diagnosis(
        severity="medium" if uneven else "info",
        diagnosis=f"The environment changes what NCCL does{of(log, case)}: "
        + ", ".join(f"{name}={value} ({SETTINGS[name]})" for name, value in told)
        + (f". Not the same on all ranks: {', '.join(uneven)}" if uneven else "")
        + ".",
        recommendation="Give all ranks the same settings." if uneven else None,
    )


def _uneven(log: NcclLog) -> list[str]:
    values = defaultdict(set)
    for name, value in log.environment:
        values[name].add(value)
    per_node = {"NCCL_SOCKET_IFNAME", "NCCL_IB_HCA", "NCCL_TOPO_FILE", "NCCL_DEBUG_FILE"}
    return sorted(name for name, own in values.items() if len(own) > 1 and name in SETTINGS and name not in per_node)


def log_in_words(log: NcclLog, case: Case) -> Iterator[Diagnosis]:
    """What a log tells that is in order."""
    versions = sorted(set(log.versions.values()))
    if not (versions or log.nccl_lines or log.test_gb_per_s):
        return
    world = [member for member in log.members if member.size == log.world]
    complete = [member for member in world if member.is_complete]
    parts = [
        f"NCCL {' and '.join(versions) or 'of unknown version'}",
        f"{log.world} ranks on {len(log.hosts)} {'host' if len(log.hosts) == 1 else 'hosts'}" if log.world else "",
        _init(log, len(complete)),
        ", ".join(f"{count} connections via {transport}" for transport, count in log.transports().most_common(4)),
        f"{count} channels for collectives" if (count := log.coll_channels()) is not None else "",
        ", ".join(
            sorted(
                {
                    f"graph of {count} channels at {rate:g} GB/s over {path}"
                    for count, rate, path in log.patterns.values()
                }
            )
        ),
        f"nccl-tests reach {log.test_gb_per_s[size]:g} GB/s of bus bandwidth at {size_text(size)}"
        if (size := max(log.test_gb_per_s, key=log.test_gb_per_s.__getitem__, default=None)) is not None
        else "",
        _socket(log),
    ]
    is_fine = bool(complete) and len(complete) == len(world) and not log.warnings and len(versions) == 1
    closed = any(member.is_closed == "Destroy" for member in world)
    yield Diagnosis(
        diagnosis=f"The log{of(log, case)}: "
        + "; ".join(part for part in parts if part)
        + (". No warning; every rank that it has finished init" if is_fine else "")
        + (", and closed its communicator." if is_fine and closed else "."),
        signal=f"{log.nccl_lines:,} lines of NCCL in {', '.join(log.names[:3])}"
        + (" and more." if len(log.names) > 3 else "."),
        caveat=None
        if closed or not is_fine
        else "It does not have the end of the job: a hang after the last line would not show.",
    )


def _init(log: NcclLog, complete: int) -> str:
    times = [member.init_s for member in log.members if member.init_s is not None and member.size == log.world]
    if not complete:
        return ""
    told = f" in {_span(times)} s" if times else ""
    return f"init complete on {complete} of {log.world}{told}"


def _span(times: list[float]) -> str:
    return f"{min(times):.2f} to {max(times):.2f}" if min(times) < max(times) else f"{max(times):.2f}"


def _socket(log: NcclLog) -> str:
    if log.is_one_node and "Socket" in log.networks.values():
        return "the network is Socket, which is harmless on one node"
    return ""
