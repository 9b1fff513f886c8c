"""What PyTorch's memory snapshots tell: who holds the memory, what grows, what was asked for in vain.

from pathlib import Path
from traceanalyzer.snapshots import examine_snapshots, find_snapshots, sentences

for sentence in sentences(examine_snapshots(find_snapshots(Path("profile/oom")))):
print(sentence)
"""

from traceanalyzer.discovery import find_snapshots, is_snapshot
from traceanalyzer.snapshots.comparison import MemoryChange, change, compared, sentences
from traceanalyzer.snapshots.examination import (
    Examined,
    Growth,
    OutOfMemory,
    deciding,
    examine_readable,
    examine_snapshot,
    examine_snapshots,
)
from traceanalyzer.snapshots.reading import Snapshot, read_snapshot

__all__ = [
    "Examined",
    "Growth",
    "MemoryChange",
    "OutOfMemory",
    "Snapshot",
    "change",
    "compared",
    "deciding",
    "examine_readable",
    "examine_snapshot",
    "examine_snapshots",
    "find_snapshots",
    "is_snapshot",
    "read_snapshot",
    "sentences",
]
