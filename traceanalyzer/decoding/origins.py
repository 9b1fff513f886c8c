"""Whose recording a file is: one process's, as profilers write it, or those of several, merged into one file."""

from collections import Counter
from dataclasses import dataclass, field
from typing import Any

_EVERY = 16
"""Of each chunk's events of a category as many are looked at, and the last: recordings hold thousands."""

_HOST = ("cpu_op", "operator", "cuda_runtime", "cuda_driver", "runtime")


@dataclass(slots=True)
class Origins:
    """The processes that a file's events name.

    Attributes:
        hosts: categories of the host's events, each with the processes that called.
        devices: GPUs, each with the numbers under which its operations are filed: of one process there is one.
    """

    hosts: set[tuple[str, int | str]] = field(default_factory=set)
    devices: set[tuple[int, int | str]] = field(default_factory=set)

    def add_calls(self, category: str, events: list[Any]) -> None:
        """Take the host's events of one category; of others than operators and calls nothing."""
        if category in _HOST:
            self.hosts.update((category, process) for process in {event.pid for event in _some(events)})

    def add_operations(self, events: list[Any]) -> None:
        """Take GPU operations."""
        pairs = {(event.args.device, event.pid) for event in _some(events) if event.args}
        self.devices.update((device, place) for device, place in pairs if device is not None)

    def merge(self, later: "Origins") -> None:
        """Take what events that follow name."""
        self.hosts |= later.hosts
        self.devices |= later.devices

    def are_several(self) -> bool:
        """Whether the file holds the recordings of several processes.

        Categories are held apart: within a container the operators' number of one process may be another than its
        calls'.
        """
        return any(
            count > 1 for pairs in (self.hosts, self.devices) for count in Counter(key for key, _ in pairs).values()
        )


def _some(events: list[Any]) -> list[Any]:
    """Events to look at of those of a chunk, which are one recording's, or several recordings' in turns."""
    return [*events[::_EVERY], *events[-1:]]
