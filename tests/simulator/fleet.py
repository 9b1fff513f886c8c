"""Jobs of hundreds of ranks with a fault of a set of them, on hosts and racks, and the truth about each.

    python -m tests.simulator.fleet FOLDER --ranks 256 --fault node

writes the traces, `hosts.csv` (rank, host, rack) and `truth.json` beside them.
"""

import argparse
import json
from collections.abc import Callable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from random import Random

from tests.simulator import kineto, workloads
from tests.simulator.capture import Capture, capture
from tests.simulator.engine import run
from tests.simulator.jobs import meshes
from tests.simulator.program import COMM_STREAM, Group, Instruction, Job, Program, adjacent, strided

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
    """Who is at fault, by what, the words that the report's first line has to have, and which kind of finding says it."""

    fault: str
    ranks: tuple[int, ...]
    cause: str | None
    says: tuple[str, ...]
    kind: str | None


def truth_of(
    fault: str, ranks: int, layout: Layout = USUAL, seed: int | None = None, parallel: str = "hybrid"
) -> Truth:
    """What a report of such a job has to say first; `seed` draws which host, rank and half, b20 of 32 and so on without.

    Half of a pipelined job is two of its four stages: of stages whose every GPU is slow nothing but their layers tells.
    """
    drawn = Random(seed)
    hosts = ranks // layout.per_host
    node = hosts * 5 // 8 if seed is None else drawn.randrange(hosts)
    one = layout.per_host // 2 if seed is None else drawn.randrange(layout.per_host)
    begin = 0 if seed is None else drawn.choice((0, ranks // 2))
    of_node = tuple(range(node * layout.per_host, (node + 1) * layout.per_host))
    rack = node // layout.hosts_per_rack
    per_rack = layout.per_host * layout.hosts_per_rack
    late = {
        "node": of_node,
        "rack": tuple(range(rack * per_rack, (rack + 1) * per_rack)),
        "rank": of_node[one : one + 1],
        "half": tuple(range(begin, begin + ranks // 2)),
        "nvlink": of_node,
        "none": (),
    }[fault]
    host = f"host {layout.host_of(of_node[0])}"
    to = " and " if len(late) == 2 else "–"
    shown = f"anks {late[0]}{to}{late[-1]}" if len(late) > 1 else f"ank {late[0]}" if late else ""
    words = {
        "node": (host,),
        "rack": (f"rack r{rack}",),
        "rank": (host,),
        "half": ("half of the job",),
        "nvlink": (host, "move data"),
        "none": (),
    }[fault]
    cause = {"nvlink": "transfer", "none": None}.get(fault, "compute")
    if fault == "half" and parallel == "pipeline":
        return Truth(fault, late, cause, (), "pipeline_stages")
    return Truth(fault, late, cause, tuple(filter(None, (shown, *words))), "straggler" if late else None)


def job(ranks: int = 256, fault: str = "none", steps: int = 4, layout: Layout = USUAL, parallel: str = "hybrid",
        seed: int | None = None) -> Job:  # fmt: skip
    """A job of the kind `parallel` (of `PARALLEL`) with a fault, on hosts."""
    truth = truth_of(fault, ranks, layout, seed, parallel)
    whole = PARALLEL[parallel](ranks, layout.per_host, steps)
    programs = tuple(_faulty(program, truth) for program in whole.programs)
    return replace(whole, programs=programs, hosts=tuple(layout.host_of(rank) for rank in range(ranks)))


def _faulty(program: Program, truth: Truth) -> Program:
    """The program on a slow GPU, or beside slow links: transfers within the hosts at fault."""

    def factor(each: Instruction) -> float:
        is_within = each.comm is not None and {*each.comm.group.ranks} <= {*truth.ranks}
        return (
            SLOWER if truth.cause == each.kind == "compute" else 2.0 if truth.cause == "transfer" and is_within else 1.0
        )

    if program.rank not in truth.ranks:
        return program
    return replace(
        program, instructions=[replace(each, ns=round(each.ns * factor(each))) for each in program.instructions]
    )


def _hybrid(ranks: int, per_host: int, steps: int) -> Job:
    """Hybrid sharding: parameters gathered and gradients scattered within hosts, reduced across them."""
    rows = adjacent("shard", per_host, ranks // per_host)  # fmt: skip
    columns = strided("replicate", ranks // per_host, per_host)
    programs = []
    for rank in range(ranks):
        program = Program(rank)
        for step in range(steps):
            with program.range(f"ProfilerStep#{step}"):
                _step(program, rows[rank // per_host], columns[rank % per_host])
                program.sync()
        programs.append(program)
    return Job(tuple(programs), (*rows, *columns), jitter=0.004)


def _step(program: Program, row: Group, column: Group) -> None:
    for _ in range(_LAYERS):
        gathered = program.collective("all_gather", row, 32_000_000, _MOVE_NS)
        with program.range("aten::linear", "operator", "[[4096, 768], [768, 768]]"):
            program.host(10_000)
            program.kernel("forward_gemm", _FORWARD_NS, after=(gathered,))
    reduced = []
    for _ in range(_LAYERS):
        gathered = program.collective("all_gather", row, 32_000_000, _MOVE_NS)
        with program.range("aten::linear_backward", "operator", "[[4096, 768], [768, 768]]"):
            program.host(10_000)
            gradient = program.kernel("backward_gemm", _BACKWARD_NS, after=(gathered,))
        scattered = program.collective("reduce_scatter", row, 32_000_000, _MOVE_NS, stream=COMM_STREAM + 1,
                                       after=(gradient,))  # fmt: skip
        reduced.append(program.collective("all_reduce", column, 4_000_000, _REDUCE_NS, stream=COMM_STREAM + 2,
                                          after=(scattered,)))  # fmt: skip
    with program.range("Optimizer.step#AdamW.step", "operator"):
        program.kernel("adam", 200_000, after=tuple(reduced))


PARALLEL: dict[str, Callable[[int, int, int], Job]] = {
    "hybrid": _hybrid,
    "data": lambda ranks, _, steps: workloads.ddp(ranks, steps),
    "sharded": lambda ranks, _, steps: workloads.fsdp(ranks, steps),
    "tensor": lambda ranks, per_host, steps: workloads.tp_dp(per_host, ranks // per_host, steps),
    "experts": lambda ranks, per_host, steps: workloads.ep_dp(per_host, ranks // per_host, steps),
    "pipeline": lambda ranks, _, steps: meshes.pipeline_by_data(4, ranks // 4, 8, steps),
}
"""Kinds of jobs, of so many ranks, ranks on a host and steps."""

WITHIN_HOSTS = ("hybrid", "tensor", "experts")
"""Kinds with transfers among the ranks of one host alone: in the others a slow host's links slow everyone's."""


def write(folder: Path, ranks: int, fault: str, steps: int = 4, layout: Layout = USUAL, parallel: str = "hybrid",
          seed: int | None = None) -> Truth:  # fmt: skip
    """The job's traces, `hosts.csv` and `truth.json`; returns the truth."""
    truth = truth_of(fault, ranks, layout, seed, parallel)
    kineto.write(capture(run(job(ranks, fault, steps, layout, parallel, seed)), Capture()), folder)
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
    parser.add_argument("--parallel", choices=PARALLEL, default="hybrid")
    parser.add_argument("--seed", type=int)
    given = parser.parse_args()
    write(given.folder, given.ranks, given.fault, given.steps, parallel=given.parallel, seed=given.seed)


if __name__ == "__main__":
    main()
