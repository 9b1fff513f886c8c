"""How the GPUs of a run are joined: paths of its machine's topology, transports of NCCL's log."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import pandas as pd

FARTHEST_LAST = ("PIX", "PXB", "PHB", "NODE", "SYS")
"""PCIe paths, the nearest first; NVLinks (`NV18`: eighteen of them) come before all."""

NETWORK = "network"
"""Path between two machines."""


@dataclass(frozen=True, slots=True)
class Wiring:
    """What a topology and NCCL's log tell of the job's ranks.

    Attributes:
        paths: numbers of two GPUs of a machine → `NV18`, `PIX`, … `SYS`; all machines are taken to be alike.
        gpus: rank → its GPU's number on its machine, where the log tells it.
        hosts: rank → its machine, where the log tells it.
        transports: two ranks → transport of their connections (`P2P/CUMEM`, `NET/IB/0/GDRDMA`) → channels that use it.
    """

    paths: Mapping[tuple[int, int], str] = field(default_factory=dict)
    gpus: Mapping[int, int] = field(default_factory=dict)
    hosts: Mapping[int, str] = field(default_factory=dict)
    transports: Mapping[tuple[int, int], Counter[str]] = field(default_factory=dict)

    def placed(self, ranks: pd.DataFrame) -> "Wiring":
        """The same with GPUs and machines of the ranks' table where the log does not tell them.

        Without any name of a machine ranks are on one when no two have the same GPU.
        """
        known = ranks.set_index("rank")
        devices = {int(rank): int(number) for rank, number in known["device"].dropna().items()}
        hosts = {int(rank): str(name) for rank, name in known["host"].dropna().items()}
        if not hosts and len(set(devices.values())) == len(devices) == len(known):
            hosts = dict.fromkeys(devices, "")
        return Wiring(self.paths, devices | dict(self.gpus), hosts | dict(self.hosts), self.transports)

    def path(self, ranks: Sequence[int]) -> str | None:
        """The farthest path between any two of the ranks; `None` where one of them is not told."""
        told = [self._path(one, other) for one, other in combinations(sorted(ranks), 2)]
        known = [path for path in told if path is not None]
        return max(known, key=distance) if told and len(known) == len(told) else None

    def transport(self, ranks: Sequence[int]) -> str | None:
        """Transports between the ranks, the one of most channels first; `None` where the log has none."""
        found: Counter[str] = Counter()
        for pair in combinations(sorted(ranks), 2):
            found.update(self.transports.get(pair, {}))
        return ", ".join(name for name, _ in found.most_common()) or None

    def _path(self, one: int, other: int) -> str | None:
        hosts = self.hosts.get(one), self.hosts.get(other)
        if None in hosts:
            return None
        if hosts[0] != hosts[1]:
            return NETWORK
        first, second = self.gpus.get(one), self.gpus.get(other)
        if first is None or second is None:
            return None
        return self.paths.get((first, second)) or self.paths.get((second, first))


def distance(path: str) -> tuple[int, int]:
    """Orders paths, the nearest first: more NVLinks before fewer, those before PIX > PXB > PHB > NODE > SYS."""
    if path.startswith("NV"):
        return 0, -int(path[2:])
    return (1 + FARTHEST_LAST.index(path) if path in FARTHEST_LAST else len(FARTHEST_LAST) + 1), 0


def nvlinks(path: object) -> int | None:
    """Number of NVLinks of a path; `None` of another one."""
    return int(path[2:]) if isinstance(path, str) and path.startswith("NV") and path[2:].isdigit() else None
