"""Jobs of hundreds of ranks with a fault of a set of them, on hosts and racks, and the truth about each.

    python -m tests.simulator.fleet FOLDER --ranks 256 --fault node

writes the traces, `hosts.csv` (rank, host, rack) and `truth.json` beside them.
"""

import argparse
import json
from dataclasses import asdict, dataclass
from pathlib import Path

from tests.simulator import kineto
from tests.simulator.capture import Capture, capture
from tests.simulator.engine import run
from tests.simulator.program import COMM_STREAM, Group, Job, Program

SLOWER = 1.24
"""By what a slow GPU's kernels are longer."""

FAULTS = ("node", "rack", "rank", "half", "nvlink", "none")

_LAYERS = 2
_FORWARD_NS, _BACKWARD_NS, _MOVE_NS, _REDUCE_NS = 1_500_000, 3_000_000, 500_000, 300_000


@dataclass(frozen=True)
class Layout:
    """How ranks lie on hosts, and hosts in racks."""

    per_host: int = 8
    hosts_per_rack: int = 4

    def host_of(self, rank: int) -> str:
        """`b07`."""
        return f"b{rank // self.per_host:02}"

    def rack_of(self, rank: int) -> str:
        """`r1`."""
        return f"r{rank // self.per_host // self.hosts_per_rack}"


USUAL = Layout()

SMALL = Layout(3, 2)
"""For 24 ranks on 8 hosts: what always runs."""


@dataclass(frozen=True)
class Truth:
    """Who is at fault, by what, and the words that the report's first line has to have."""

    fault: str
    ranks: tuple[int, ...]
    cause: str | None
    says: tuple[str, ...]


def truth_of(fault: str, ranks: int, layout: Layout = USUAL) -> Truth:
    """What a report of such a job has to say first."""
    node = ranks // layout.per_host * 5 // 8  # b20 of 32 hosts
    of_node = tuple(range(node * layout.per_host, (node + 1) * layout.per_host))
    rack = node // layout.hosts_per_rack
    per_rack = layout.per_host * layout.hosts_per_rack
    late = {
        "node": of_node,
        "rack": tuple(range(rack * per_rack, (rack + 1) * per_rack)),
        "rank": of_node[layout.per_host // 2 : layout.per_host // 2 + 1],
        "half": tuple(range(ranks // 2)),
        "nvlink": of_node,
        "none": (),
    }[fault]
    host = f"host {layout.host_of(of_node[0])}"
    shown = f"anks {late[0]} to {late[-1]}" if len(late) > 1 else f"ank {late[0]}" if late else ""
    words = {
        "node": (host,),
        "rack": (f"rack r{rack}",),
        "rank": (host,),
        "half": ("half of the job",),
        "nvlink": (host, "move data"),
        "none": ("A step takes",),
    }[fault]
    return Truth(
        fault, late, {"nvlink": "transfer", "none": None}.get(fault, "compute"), tuple(filter(None, (shown, *words)))
    )


def job(ranks: int = 256, fault: str = "none", steps: int = 4, layout: Layout = USUAL) -> Job:
    """Hybrid sharding: parameters gathered and gradients scattered within hosts, reduced across them."""
    truth, per_host = truth_of(fault, ranks, layout), layout.per_host
    rows = [Group(f"shard{row}", tuple(range(row * per_host, (row + 1) * per_host)), "shard")
            for row in range(ranks // per_host)]  # fmt: skip
    columns = [Group(f"replicate{one}", tuple(range(one, ranks, per_host)), "replicate") for one in range(per_host)]
    programs = []
    for rank in range(ranks):
        program = Program(rank)
        is_late = rank in truth.ranks
        compute = SLOWER if is_late and truth.cause == "compute" else 1.0
        links = 2.0 if is_late and truth.cause == "transfer" else 1.0
        for step in range(steps):
            with program.range(f"ProfilerStep#{step}"):
                _step(program, rows[rank // per_host], columns[rank % per_host], compute, links)
                program.sync()
        programs.append(program)
    hosts = tuple(layout.host_of(rank) for rank in range(ranks))
    return Job(tuple(programs), (*rows, *columns), jitter=0.004, hosts=hosts)


def _step(program: Program, row: Group, column: Group, compute: float, links: float) -> None:
    move_ns = round(_MOVE_NS * links)
    for _ in range(_LAYERS):
        gathered = program.collective("all_gather", row, 32_000_000, move_ns)
        with program.range("aten::linear", "operator", "[[4096, 768], [768, 768]]"):
            program.host(10_000)
            program.kernel("forward_gemm", round(_FORWARD_NS * compute), after=(gathered,))
    reduced = []
    for _ in range(_LAYERS):
        gathered = program.collective("all_gather", row, 32_000_000, move_ns)
        with program.range("aten::linear_backward", "operator", "[[4096, 768], [768, 768]]"):
            program.host(10_000)
            gradient = program.kernel("backward_gemm", round(_BACKWARD_NS * compute), after=(gathered,))
        scattered = program.collective("reduce_scatter", row, 32_000_000, move_ns, stream=COMM_STREAM + 1,
                                       after=(gradient,))  # fmt: skip
        reduced.append(program.collective("all_reduce", column, 4_000_000, _REDUCE_NS, stream=COMM_STREAM + 2,
                                          after=(scattered,)))  # fmt: skip
    with program.range("Optimizer.step#AdamW.step", "operator"):
        program.kernel("adam", round(200_000 * compute), after=tuple(reduced))


def write(folder: Path, ranks: int, fault: str, steps: int = 4, layout: Layout = USUAL) -> Truth:
    """The job's traces, `hosts.csv` and `truth.json`; returns the truth."""
    truth = truth_of(fault, ranks, layout)
    kineto.write(capture(run(job(ranks, fault, steps, layout)), Capture()), folder)
    rows = [f"{rank},{layout.host_of(rank)},{layout.rack_of(rank)}" for rank in range(ranks)]
    (folder / "hosts.csv").write_text("\n".join(["rank,host,rack", *rows, ""]))
    (folder / "truth.json").write_text(json.dumps(asdict(truth), indent=1) + "\n")
    return truth


def main() -> None:
    """Write one job."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path)
    parser.add_argument("--ranks", type=int, default=256)
    parser.add_argument("--fault", choices=FAULTS, default="none")
    parser.add_argument("--steps", type=int, default=4)
    given = parser.parse_args()
    write(given.folder, given.ranks, given.fault, given.steps)


if __name__ == "__main__":
    main()
