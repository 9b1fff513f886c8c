"""Topology and NCCL logs of a run that lie beside its traces, and what they tell of its ranks."""

from collections import Counter
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from traceanalyzer.discovery.candidates import leads_out
from traceanalyzer.doctor.topology import Topology, is_topology
from traceanalyzer.job.wiring import Wiring

if TYPE_CHECKING:
    from traceanalyzer.doctor.nccl_log import NcclLog

_SUFFIXES = frozenset({".txt", ".log", ".out", ".err"})

_HEAD_BYTES = 1 << 18

MOST_BYTES = 1 << 30
"""Larger texts are read only when they are named."""

_MOST_FILES = 4_096


def texts_beside(folder: Path) -> tuple[Path | None, list[Path]]:
    """A topology and NCCL logs among the texts of a folder, without those below it, by what stands in them."""
    named = sorted(path for path in folder.iterdir() if path.suffix.lower() in _SUFFIXES and path.is_file())
    texts = [path for path in named if not leads_out(path, folder)]
    topology: Path | None = None
    logs = []
    for path in texts[:_MOST_FILES]:
        if path.stat().st_size > MOST_BYTES:
            continue
        with path.open("rb") as file:
            head = file.read(_HEAD_BYTES)
        if b"\0" in head:
            continue
        if b"NCCL INFO" in head or b"NCCL WARN" in head:
            logs.append(path)
        elif topology is None and is_topology(head.decode("utf-8", errors="replace")):
            topology = path
    return topology, logs


def wiring(topology: Topology | None, logs: "Sequence[NcclLog]") -> Wiring | None:
    """What they tell of the job's ranks; of several jobs' logs the largest job's. `None` of nothing."""
    if topology is None and not logs:
        return None
    log = max(logs, key=lambda one: one.world, default=None)
    paths = {} if topology is None else {
        (int(one[3:]), int(other[3:])): path for (one, other), path in topology.gpu_pairs().items()
    }  # fmt: skip
    if log is None:
        return Wiring(paths)
    world = {(member.communicator, member.rank): rank for member in log.members
             if (rank := log.rank_of(member.process)) is not None}  # fmt: skip
    members = [(rank, member) for member in log.members if (rank := log.rank_of(member.process)) is not None]
    return Wiring(
        paths,
        {rank: member.gpu for rank, member in members if member.gpu is not None},
        {rank: member.process[0] for rank, member in members},
        _transports(log, world),
    )


def _transports(log: "NcclLog", world: dict[tuple[str, int], int]) -> dict[tuple[int, int], Counter[str]]:
    """By two ranks of the job the transports of their connections, each channel of a communicator once."""
    channels: dict[tuple[int, int], set[tuple[str, str | None, int]]] = {}
    for link in log.links:
        ends = _ends(link.communicator, (link.source, link.target), world)
        if ends is not None:
            channels.setdefault(ends, set()).add((link.transport, link.communicator, link.channel))
    return {pair: Counter(name for name, _, _ in told) for pair, told in channels.items()}


def _ends(communicator: str | None, ranks: Iterable[int], world: dict[tuple[str, int], int]) -> tuple[int, int] | None:
    """The two ranks as the job counts them, the lower first; a communicator that is not named is the job's."""
    known = [rank if communicator is None else world.get((communicator, rank)) for rank in ranks]
    told = sorted(rank for rank in known if rank is not None)
    return (told[0], told[1]) if len(told) == 2 and told[0] != told[1] else None
