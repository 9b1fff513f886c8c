"""Random jobs whose ranks differ, through the whole command: a few of those that `tests.fuzz_jobs` makes."""

import pytest

from tests.fuzz_jobs import is_fine, outcome


@pytest.mark.parametrize("first", range(0, 40, 5))
def test_no_job_ends_in_a_bug(first, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ends = {seed: outcome(seed) for seed in range(first, first + 5)}
    bad = {seed: end for seed, end in ends.items() if not is_fine(*end)}
    assert not bad
