"""How the GPUs and NICs of a machine are connected, as `nvidia-smi topo -m` prints it."""

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import combinations
from typing import NamedTuple

from traceanalyzer.doctor.knowledge import Facts
from traceanalyzer.doctor.nccl_log import ANSI
from traceanalyzer.errors import InputError
from traceanalyzer.job.run_info import FARTHEST_LAST, distance, nvlinks

_OLD_NAMES = {"SOC": "SYS"}

_PATH = re.compile(r"X|NV\d{1,9}|PIX|PXB|PHB|NODE|SYS|SOC|PSB|C2C|N/A|OK|NS|CNS|GNS|TNS|DR|U|X\*")
_P2P = {"OK": "works", "CNS": "chipset not supported", "GNS": "GPU not supported", "TNS": "topology not supported",
        "NS": "not supported", "DR": "disabled by a registry key", "U": "unknown"}  # fmt: skip
"""Cells of `nvidia-smi topo -p2p r`."""

_CELLS = re.compile(f"(?:{_PATH.pattern})+")
_DEVICE = re.compile(r"(?!NV\d+$)[A-Za-z]\w*\d\w*")
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
        unread: GPUs whose row could not be read.
        separated: GPUs whose row has cells that run together, read one by one.
        p2p: (one, other) → `OK`, `CNS`, … of two GPUs, where `nvidia-smi topo -p2p r` stands in the text too.
        notes: what of the text was not understood.
    """

    devices: tuple[str, ...]
    paths: Mapping[tuple[str, str], str]
    nic_names: Mapping[str, str]
    cpu_affinity: Mapping[str, str]
    numa_node: Mapping[str, str]
    notes: tuple[str, ...] = ()
    unread: tuple[str, ...] = ()
    separated: tuple[str, ...] = ()
    p2p: Mapping[tuple[str, str], str] = field(default_factory=dict)

    @property
    def gpus(self) -> tuple[str, ...]:
        """Devices that are GPUs."""
        return tuple(device for device in self.devices if device.startswith("GPU"))

    @property
    def nics(self) -> tuple[str, ...]:
        """Devices that are NICs."""
        return tuple(device for device in self.devices if not device.startswith("GPU"))

    def path(self, one: str, other: str) -> str | None:
        """The path between two devices, in either direction that the matrix has."""
        return self.paths.get((one, other)) or self.paths.get((other, one))

    def gpu_pairs(self) -> dict[tuple[str, str], str]:
        """Each two GPUs and their path, where it is known."""
        return {pair: path for pair in combinations(self.gpus, 2) if (path := self.path(*pair)) is not None}

    def nearest_nics(self) -> dict[str, tuple[str, tuple[str, ...]]]:
        """GPU → its best path to a NIC, and all NICs at that path; GPUs without a known path are left out."""
        found = {}
        for gpu in self.gpus:
            known = {nic: path for nic in self.nics if (path := self.path(gpu, nic)) is not None}
            best = min(known.values(), key=distance, default="")
            if known:
                found[gpu] = (best, tuple(nic for nic, path in known.items() if distance(path) == distance(best)))
        return found

    def nvlinks_of_gpus(self) -> dict[str, int]:
        """GPU → its NVLinks to one other GPU, the most of all its pairs; 0 for none."""
        links = dict.fromkeys((gpu for gpu in self.gpus if gpu not in self.unread), 0)
        for pair, path in self.gpu_pairs().items():
            for gpu in links.keys() & pair:
                links[gpu] = max(links[gpu], nvlinks(path) or 0)
        return links

    @property
    def links_between_gpus(self) -> int:
        """The fewest NVLinks between any two GPUs; 0 when some pair has none."""
        return min((nvlinks(path) or 0 for path in self.gpu_pairs().values()), default=0)

    def name_of(self, nic: str) -> str:
        """`NIC2 (mlx5_bond_0)` where the legend names it."""
        return f"{nic} ({self.nic_names[nic]})" if nic in self.nic_names else nic

    def nics_in_words(self, path: str = "") -> str:
        """`GPU0: NIC0 (mlx5_0) at PIX; …`: the nearest cards of each GPU, or of those whose cards are at this path."""
        return "; ".join(
            f"{gpu}: {', '.join(map(self.name_of, nics))} at {at}"
            for gpu, (at, nics) in self.nearest_nics().items() if path in {"", at}
        )  # fmt: skip


def parse_topology(text: str, name: str = "topology") -> Topology:
    """Read the matrix out of a text that may hold other things too: prompts, colours, a legend.

    Raises:
        InputError: there is no matrix in it.
    """
    lines = [ANSI.sub("", line).replace("\xa0", " ") for line in text.splitlines()]
    devices: tuple[str, ...] = ()
    columns: tuple[str, ...] = ()
    paths: dict[tuple[str, str], str] = {}
    p2p: dict[tuple[str, str], str] = {}
    rows: dict[str, tuple[list[str], bool]] = {}
    notes = set()
    for line in lines:
        columns = _header(line) or columns
        devices = devices or columns
        row = _row(line, columns)
        if row is None:
            continue
        device, cells, rest, is_separated = row
        own = {(device, other): cell for other, cell in zip(columns, cells, strict=True)}
        if set(cells) & _P2P.keys():
            p2p |= {pair: cell for pair, cell in own.items() if cell in _P2P}
        elif device in rows:
            notes.add(f"{name} holds more than one matrix; the first is read.")
        else:
            rows[device] = rest, is_separated
            paths |= {pair: cell for pair, cell in own.items() if cell in FARTHEST_LAST or nvlinks(cell)}
    if not devices:
        raise InputError(f"{name}: no topology matrix found; give what `nvidia-smi topo -m` prints, header included")
    if not rows and not p2p:
        raise InputError(f"{name}: the topology matrix has a header but no row that can be read")
    gpus = [device for device in devices if device.startswith("GPU")]
    behind = {gpu: rows[gpu][0] for gpu in gpus if gpu in rows}
    return Topology(
        devices,
        paths,
        nic_names={found[1]: found[2] for line in lines if (found := _LEGEND.match(line))},
        cpu_affinity={gpu: rest[0] for gpu, rest in behind.items() if rest},
        numa_node={gpu: rest[1] for gpu, rest in behind.items() if len(rest) > 1},
        notes=tuple(notes),
        unread=tuple(gpu for gpu in gpus if rows and gpu not in rows),
        separated=tuple(device for device, (_, is_separated) in rows.items() if is_separated),
        p2p=p2p,
    )


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
        len(leading) == len(words) or words[len(leading)].partition("_")[0] in {"CPU", "NUMA", "GPU"}
    )  # fmt: skip
    return tuple(leading) if is_header and len(set(leading)) == len(leading) else ()


def _row(line: str, devices: tuple[str, ...]) -> tuple[str, list[str], list[str], bool] | None:
    """A device, its cells, what stands behind them, and whether cells ran together (`NODENODE`)."""
    words = line.split()
    at = next((number for number, word in enumerate(words) if word in devices), len(words))
    cells: list[str] = []
    for end, word in enumerate(words[at + 1 :], at + 2):
        cells += _PATH.findall(word) if _CELLS.fullmatch(word) else [""]
        if len(cells) >= len(devices):
            known = [_OLD_NAMES.get(cell, cell) for cell in cells]
            is_whole = len(cells) == len(devices) and all(cells)
            return (words[at], known, words[end:], end - at - 1 < len(devices)) if is_whole else None
    return None


def topology_in_words(topology: Topology) -> Iterator[Facts]:
    """How the GPUs are joined."""
    paths = sorted(topology.gpu_pairs().values(), key=distance)
    bonds = [name for name in map(topology.name_of, topology.nics) if "bond" in name]
    listed = ", ".join(f"{count} × {path}" for path, count in Counter(paths).items())
    yield {"paths": paths, "listed": listed, "bonds": bonds}


def unread_rows(topology: Topology) -> Iterator[Facts]:
    """Rows of the matrix that are not read, or read cell by cell."""
    if topology.unread or topology.separated:
        yield {}


def no_p2p(topology: Topology) -> Iterator[Facts]:
    """GPUs between which the driver says that P2P does not work."""
    if bad := {pair: cell for pair, cell in topology.p2p.items() if cell != "OK" and pair[0] < pair[1]}:
        yield {"bad": bad, "why": {cell: _P2P[cell] for cell in bad.values()}}


def sys_paths(topology: Topology) -> Iterator[Facts]:
    """GPUs of which some pair is joined through the CPUs' interconnect only."""
    if far := [f"{one}–{other}" for (one, other), path in topology.gpu_pairs().items() if path == "SYS"]:
        yield {"far": far}


class Gpu(NamedTuple):
    """A GPU as `nvidia-smi` lists it; what its output lacks is `None`."""

    number: int
    name: str
    used_mib: int | None = None
    total_mib: int | None = None
    busy_pct: int | None = None


_GPU_ROWS = re.compile(
    r"^\|\s+(\d{1,4})\s+(\S[^|\n]*?)\s+(?:On|Off|N/A)\s*\|[^\n]*\n"
    r"\|[^|\n]*\|\s*(\d{1,9})MiB\s*/"
    r"\s*(\d{1,9})MiB\s*\|\s*(?:(\d{1,3})%)?|^GPU (\d{1,4}): (.+?) \(UUID",
    re.MULTILINE,
)


def parse_inventory(text: str) -> tuple[Gpu, ...]:
    """The GPUs in the output of `nvidia-smi` or `nvidia-smi -L`; none when it is something else."""
    return tuple(
        Gpu(int(one), name, int(used), int(total), int(busy) if busy else None) if one else Gpu(int(other), plain)
        for one, name, used, total, busy, other, plain in _GPU_ROWS.findall(text)
    )


_NVLINK_ROW = re.compile(r"^(?:GPU (\d{1,4}): .*|\s+Link (\d{1,3}): (?:(<inactive>)|[\d.]+ GB/s))\s*$", re.MULTILINE)


def parse_nvlinks(text: str) -> dict[str, int]:
    """GPU → active links, in the output of `nvidia-smi nvlink -s`; none when it is something else."""
    found: dict[str, int] = {}
    gpu = ""
    for number, link, inactive in _NVLINK_ROW.findall(text):
        gpu = f"GPU{number}" if number else gpu
        if link and gpu:
            found[gpu] = found.get(gpu, 0) + (not inactive)
    return found


def is_inventory(text: str) -> bool:
    """Whether a text is what `nvidia-smi`, `nvidia-smi -L` or `nvidia-smi nvlink -s` prints."""
    return bool(parse_inventory(text) or parse_nvlinks(text))


def gpu_inventory(gpus: tuple[Gpu, ...]) -> list[Facts]:
    """Which GPUs there are."""
    return [{"models": Counter(gpu.name for gpu in gpus)}]


def idle_gpus(gpus: tuple[Gpu, ...]) -> Iterator[Facts]:
    """A few GPUs that idle while the others are at 100%."""
    busy = [gpu.number for gpu in gpus if gpu.busy_pct == 100]
    idle = [gpu.number for gpu in gpus if gpu.busy_pct == 0 and gpu.used_mib]
    if 0 < len(idle) < len(busy):
        yield {"idle": idle, "busy": busy}


def far_nic(topology: Topology) -> Iterator[Facts]:
    """GPUs whose nearest network card is on another NUMA node, or behind another host bridge."""
    if far := [gpu for gpu, (path, _) in topology.nearest_nics().items() if path == "SYS"]:
        yield {"far": far}
