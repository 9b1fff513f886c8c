"""Writes into a capture of Nsight Systems which rank this process is, and which ranks each communicator joins."""

from __future__ import annotations

from typing import TYPE_CHECKING

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from traceanalyzer.runners.ranges import span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from traceanalyzer.runners.world import World


def introduce(world: World) -> None:
    """Ranges `rank 3 of 8` and `group 5 of ranks 1,3,5,7: mesh_tp`, the latter around one small all-reduce.

    NCCL's payload of that call has the communicator's id, which is how the group's other calls are known: payloads say
    it of every call, and who belongs to it only where the job began inside the capture.
    """
    with span(f"rank {world.rank} of {world.size}"):
        pass
    for name, description, ranks, group in _groups():
        what = f": {description}" if description else ""
        with span(f"group {name} of ranks {','.join(map(str, ranks))}{what}"):
            dist.all_reduce(torch.ones(1, device=world.device), group=group)
    world.synchronize()


def _groups() -> Iterator[tuple[str, str, list[int], dist.ProcessGroup]]:
    """This rank's groups of two or more ranks, in the order in which all ranks made them."""
    names = distributed_c10d._world.pg_names if dist.is_initialized() else {}  # noqa: SLF001  # has no public name
    for group, name in names.items():
        ranks = dist.get_process_group_ranks(group)
        if len(ranks) > 1 and dist.get_rank() in ranks:
            yield name, group.group_desc, ranks, group
