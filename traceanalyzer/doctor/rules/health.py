"""What is in order, said so: silence is no diagnosis."""

from collections import Counter

from traceanalyzer.doctor.case import Case, of
from traceanalyzer.doctor.diagnosis import Diagnosis
from traceanalyzer.doctor.nccl_log import NcclLog
from traceanalyzer.doctor.topology import is_nvlink
from traceanalyzer.job.wiring import distance


def topology_in_words(case: Case) -> list[Diagnosis]:
    """How the GPUs are joined."""
    if case.topology is None:
        return []
    topology = case.topology
    paths = Counter(topology.gpu_pairs().values())
    if not paths:
        told = f"The machine has {len(topology.gpus)} GPU: there is no path between GPUs."
    elif len(paths) == 1 and is_nvlink(path := next(iter(paths))):
        told = f"All {len(topology.gpus)} GPUs reach each other over NVLink ({path}: {path[2:]} links a pair). Healthy."
    else:
        ordered = sorted(paths.items(), key=lambda item: distance(item[0]))
        told = f"Between {len(topology.gpus)} GPUs: " + ", ".join(f"{count} × {path}" for path, count in ordered) + "."
    nearest = topology.nearest_nics()
    cards = "; ".join(
        f"{gpu}: {', '.join(topology.name_of(nic) for nic in nics)} at {path}" for gpu, (path, nics) in nearest.items()
    )
    bonds = [topology.name_of(nic) for nic in topology.nics if "bond" in topology.name_of(nic)]
    return [
        Diagnosis(
            severity="info",
            diagnosis=told + (f" Nearest network cards: {cards}." if cards else " It lists no network cards."),
            signal=f"The matrix of {len(topology.devices)} devices.",
            caveat=f"{', '.join(bonds)} is a bond: which ports it joins the matrix does not tell." if bonds else None,
        )
    ]


def log_in_words(case: Case) -> list[Diagnosis]:
    """What a log tells that is in order."""
    made = []
    for log in case.logs:
        versions = sorted(set(log.versions.values()))
        world = [member for member in log.members if member.size == log.world]
        complete = [member for member in world if member.is_complete]
        parts = [
            f"NCCL {' and '.join(versions) or 'of unknown version'}",
            f"{log.world} ranks on {len(log.hosts)} {'host' if len(log.hosts) == 1 else 'hosts'}" if log.world else "",
            _init(log, len(complete)),
            ", ".join(f"{count} connections via {transport}" for transport, count in log.transports().most_common(4)),
            f"{count} channels for collectives" if (count := log.coll_channels()) is not None else "",
            _socket(log),
        ]
        is_fine = bool(complete) and len(complete) == len(world) and not log.warnings and len(versions) == 1
        closed = any(member.is_closed == "Destroy" for member in world)
        made.append(
            Diagnosis(
                severity="info",
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
        )
    return made


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


def recorder_in_words(case: Case) -> list[Diagnosis]:
    """A flight recorder in which everything is complete."""
    if case.recorder is None or (case.recorder.entries["state"] != "completed").any() or case.recorder.entries.empty:
        return []
    return [
        Diagnosis(
            severity="info",
            diagnosis=f"The flight recorder of {len(case.recorder.dumps)} ranks has {len(case.recorder.entries):,} "
            f"calls, and "
            "all are complete: nothing hung when it was written.",
            signal="Every entry's state is 'completed'.",
        )
    ]
