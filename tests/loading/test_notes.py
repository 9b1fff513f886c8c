"""What is said of a job that was recorded several times into one folder."""

import pytest

from tests.builders import document, kernel, write
from traceanalyzer.discovery import discover
from traceanalyzer.loading import other_runs

MINUTE = 60_000_000  # µs
LACKS = "Captures of ranks that this run lacks are in {} (rank {}): --trace-file joins those that belong together."
GUESS = (
    "Captures of this run begin more than a minute apart, so that which belong together is a guess: there are others of "
    "{}. --trace-file joins those that do."
)


def captures(folder, starts, world_size=2):
    """One file a rank and start, in minutes."""
    for rank, minutes in starts:
        made = document([kernel(minutes * MINUTE, 5)], rank=rank, world_size=world_size, base_ns=10**18)
        write(folder / f"rank{rank}_{minutes}.json", made)


@pytest.mark.parametrize(
    ("starts", "said"),
    [
        ([(0, 0), (1, 0), (0, 300), (1, 300)], []),
        ([(0, 0), (1, 0), (0, 300)], [LACKS.format("20010909-014640", 1)]),
        ([(0, 0), (0, 60), (1, 70)], [GUESS.format("rank 0 in rank0_0")]),
        ([(0, 180), (1, 0), (0, 480), (1, 300)], [GUESS.format("ranks 0 and 1 in 20010909-014640")]),
    ],
    ids=["twice", "one rank of the second is lost", "which of two is unclear", "clocks hours apart"],
)
def test_other_captures_of_the_ranks_are_said(tmp_path, starts, said):
    captures(tmp_path, starts)
    first, *more = other_runs(discover(tmp_path))
    assert first.startswith("The folder holds 1 other run (")
    assert more == said


def test_captures_of_other_folders_and_of_other_sizes_are_other_jobs(tmp_path):
    captures(tmp_path / "naive", [(0, 0), (1, 0)])
    captures(tmp_path / "fsdp", [(0, 300)])
    assert len(other_runs(discover(tmp_path))) == 1
    captures(tmp_path / "fsdp", [(3, 100)], world_size=8)
    _, said = other_runs(discover(tmp_path))
    assert (
        said == "Taken for other jobs, as files of this run say that it has 2 ranks: fsdp of 20010909-032640 (8 ranks)."
    )
