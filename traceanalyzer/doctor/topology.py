"""How the GPUs and NICs of a machine are connected, as `nvidia-smi topo -m` prints it."""

import re
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from traceanalyzer.doctor.case import Case, Diagnosis
from traceanalyzer.doctor.nccl_log import ANSI
from traceanalyzer.errors import InputError
from traceanalyzer.job.wiring import distance

PATHS: Mapping[str, str] = {
    "PIX": "at most a single PCIe bridge",
    "PXB": "several PCIe bridges, but no host bridge",
    "PHB": "a PCIe host bridge (the CPU)",
    "NODE": "PCIe and the link between host bridges of one NUMA node",
    "SYS": "PCIe and the link between NUMA nodes",
}
"""PCIe paths, the nearest first; before all of them stand NVLinks (`NV18`: eighteen of them)."""

_OLD_NAMES = {"SOC": "SYS"}

_PATH = re.compile(r"X|NV\d{1,9}|PIX|PXB|PHB|NODE|SYS|SOC|PSB|C2C|N/A|OK|NS|CNS|GNS|TNS|DR|U|X\*")
_DEVICE = re.compile(r"GPU\d+|NIC\d+|(?:mlx|bnxt|efa|irdma|qedr|hfi|rdmap|roce|ib|hns|erdma)\w*", re.IGNORECASE)
_LEGEND = re.compile(r"^\s*(NIC\d{1,9})\s*[:=]\s*(\S+)\s*$")


@dataclass(frozen=True, slots=True)
class Topology:
    """A machine's devices and the path between each two.

    Attributes:
        devices: GPUs and NICs in the matrix' order, by its names (`GPU0`, `NIC0`, `mlx5_0`).
        paths: (one, other) → `NV18`, `PIX`, …, `SYS`; pairs that the matrix does not tell are absent.
        nic_names: NIC → the name that the legend gives it.
        cpu_affinity: GPU → CPUs, as written.
        numa_node: GPU → NUMA node, as written.
        notes: what of the text was not understood.
    """

    devices: tuple[str, ...]
    paths: Mapping[tuple[str, str], str]
    nic_names: Mapping[str, str]
    cpu_affinity: Mapping[str, str]
    numa_node: Mapping[str, str]
    notes: tuple[str, ...] = ()

    @property
    def gpus(self) -> tuple[str, ...]:
        """Devices that are GPUs."""
        return tuple(device for device in self.devices if device.startswith("GPU"))

    @property
    def nics(self) -> tuple[str, ...]:
        """Devices that are NICs."""
        return tuple(device for device in self.devices if not device.startswith("GPU"))

    def path(self, one: str, other: str) -> str | None:
        """The path between two devices, in either direction that the matrix tells."""
        return self.paths.get((one, other)) or self.paths.get((other, one))

    def gpu_pairs(self) -> dict[tuple[str, str], str]:
        """Each two GPUs and their path, where it is told."""
        pairs = [(one, other) for number, one in enumerate(self.gpus) for other in self.gpus[number + 1 :]]
        return {pair: path for pair in pairs if (path := self.path(*pair)) is not None}

    def nearest_nics(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """GPU → its best path to a NIC, and all NICs at that path; GPUs without any told path are left out."""
        found = {}
        for gpu in self.gpus:
            told = {nic: path for nic in self.nics if (path := self.path(gpu, nic)) is not None}
            if told:
                best = min(told.values(), key=distance)
                found[gpu] = (best, tuple(nic for nic, path in told.items() if distance(path) == distance(best)))
        return found

    def name_of(self, nic: str) -> str:
        """`NIC2 (mlx5_bond_0)` where the legend names it."""
        return f"{nic} ({self.nic_names[nic]})" if nic in self.nic_names else nic


def is_nvlink(path: str | None) -> bool:
    """Whether a path is NVLinks."""
    return path is not None and path.startswith("NV")


def parse_topology(text: str, name: str = "topology") -> Topology:
    """Read the matrix out of a text that may hold other things too: prompts, colours, a legend.

    Raises:
        InputError: there is no matrix in it.
    """
    lines = [ANSI.sub("", line).replace("\xa0", " ") for line in text.splitlines()]
    at = next((number for number, line in enumerate(lines) if _header(line)), None)
    if at is None:
        raise InputError(f"{name}: no topology matrix found; give what `nvidia-smi topo -m` prints, header included")
    devices = _header(lines[at])
    paths: dict[tuple[str, str], str] = {}
    affinity: dict[str, str] = {}
    numa: dict[str, str] = {}
    notes = []
    for line in lines[at + 1 :]:
        if _header(line):
            notes.append(f"{name} holds more than one matrix; the first is read.")
            break
        row = _row(line, devices)
        if row is None:
            continue
        device, cells, rest = row
        paths |= {(device, other): cell for other, cell in zip(devices, cells, strict=True) if _is_told(cell)}
        if device.startswith("GPU") and rest:
            affinity[device] = rest[0]
        if device.startswith("GPU") and len(rest) > 1:
            numa[device] = rest[1]
    if not paths:
        raise InputError(f"{name}: the topology matrix has a header but no row that can be read")
    missing = [device for device in devices if not any(device in pair for pair in paths)]
    if missing:
        notes.append(f"{name}: nothing is told of {', '.join(missing)}.")
    legend = {found[1]: found[2] for line in lines if (found := _LEGEND.match(line))}
    return Topology(devices, paths, legend, affinity, numa, tuple(notes))


def is_topology(text: str) -> bool:
    """Whether a text holds a matrix' header."""
    return any(len(_header(ANSI.sub("", line))) > 0 for line in text.splitlines())


def _header(line: str) -> tuple[str, ...]:
    """The devices that a line heads columns for; none when it is no header."""
    words = line.split()
    leading = []
    for word in words:
        if not _DEVICE.fullmatch(word):
            break
        leading.append(word)
    is_header = bool(leading) and leading[0].startswith(("GPU", "NIC")) and (
        len(leading) == len(words) or words[len(leading)] in {"CPU", "NUMA", "GPU"}
    )  # fmt: skip
    return tuple(leading) if is_header and len(set(leading)) == len(leading) else ()


def _row(line: str, devices: tuple[str, ...]) -> tuple[str, list[str], list[str]] | None:
    """A device, its cells, and what stands behind them."""
    words = line.split()
    at = next((number for number, word in enumerate(words) if word in devices), None)
    if at is None or len(words) < at + 1 + len(devices):
        return None
    cells = words[at + 1 : at + 1 + len(devices)]
    if not all(_PATH.fullmatch(cell) for cell in cells):
        return None
    return words[at], [_OLD_NAMES.get(cell, cell) for cell in cells], words[at + 1 + len(devices) :]


def _is_told(cell: str) -> bool:
    return cell in PATHS or is_nvlink(cell)


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
