"""Where an offloaded block lives: a flat buffer on the host, and a slot on the GPU while it is used."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import torch

from traceanalyzer.runners.lanes import pinned_empty

if TYPE_CHECKING:
    from torch import Tensor, nn


@dataclass
class HostBlock:
    """A block's parameters, or this rank's slice of them, in pinned host memory."""

    host: Tensor
    is_offloaded: torch.cuda.Event | None = None


@dataclass
class Slot:
    """GPU memory for one block at a time; `own` is the part of `flat` that this rank uploads."""

    flat: Tensor
    own: Tensor
    is_uploaded: torch.cuda.Event | None = None
    is_computed: torch.cuda.Event | None = None
    is_free: torch.cuda.Event | None = None


def new_slot(elements: int, rank: int, ranks: int, device: torch.device) -> Slot:
    """A slot for `elements` parameters, padded to a multiple of the ranks that share them out."""
    flat = torch.zeros(elements + -elements % ranks, device=device)
    return Slot(flat, flat.chunk(ranks)[rank])


def move_to_host(block: nn.Module, slot: Slot, device: torch.device) -> HostBlock:
    """Copy this rank's part of the block to the host and let go of its memory on the device."""
    with torch.no_grad():
        flat = torch.cat([parameter.flatten() for parameter in block.parameters()])
        slot.flat[: len(flat)] = flat
        host = pinned_empty(len(slot.own), device)
        host.copy_(slot.own)
    for parameter in block.parameters():
        parameter.data = parameter.data.new_empty(0)
    return HostBlock(host)


def point_to(block: nn.Module, shapes: list[torch.Size], flat: Tensor) -> None:
    """Make the block's parameters views of `flat`."""
    views = flat.split([shape.numel() for shape in shapes])
    for parameter, shape, view in zip(block.parameters(), shapes, views, strict=True):
        parameter.data = view.view(shape)
