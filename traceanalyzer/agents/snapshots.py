"""What PyTorch's memory snapshots in a folder answer to the question about memory."""

from collections.abc import Sequence
from pathlib import Path

from traceanalyzer.agents.answer import Answer, of_rows
from traceanalyzer.analyses.memory.memory import Memory
from traceanalyzer.job import run_info
from traceanalyzer.snapshots import examine_readable, sentences
from traceanalyzer.snapshots.job import job_of, run_json

_FILE = "Name of the snapshot, whose rank is not known where it has none."


def of_snapshots(paths: Sequence[Path], cursor: int = 0) -> Answer:
    """A row a snapshot with its columns of the `memory` table, and what the snapshots tell.

    Raises:
        InputError: none can be read.
    """
    examined, skipped = examine_readable(paths)
    info, notes = run_info.read_or_note(run_json(paths))
    job = job_of(examined, info, None)
    frame = job.memory.to_frame()
    rows = []
    for one, row in zip(examined, frame.astype(object).where(frame.notna(), None).to_dict("records"), strict=True):
        known = row | {"rank": one.snapshot.rank, "file": one.snapshot.path.name}
        held = {str(name): value for name, value in known.items() if value is not None}
        rows.append({"id": f"memory/{one.snapshot.path.name}", **held})
    columns = {name: column.definition for name, column in Memory.columns.items()} | {"file": _FILE}
    said = [*job.sentences, *sentences(examined)]
    return of_rows(rows, columns, cursor=cursor, said=said, notes=[*skipped, *notes])
