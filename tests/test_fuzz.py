"""Random jobs whose ranks differ, through the whole command: a few of those that `tests.fuzz_jobs` makes."""

import pytest

from tests.conftest import sampled
from tests.fuzz_jobs import is_fine, outcome


@pytest.mark.parametrize("seed", sampled((*range(40), 241, 136, 752), every=8))
def test_no_job_ends_in_a_bug(seed, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said = outcome(seed)
    assert is_fine(code, said), (code, said)
