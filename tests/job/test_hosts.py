"""Files that say which host and rack each rank ran on."""

import pytest

from traceanalyzer.analyses import trace
from traceanalyzer.errors import InputError
from traceanalyzer.job.run_info import Placed, read_hosts

PLACED = {0: Placed("a", "r1"), 1: Placed("a", "r1"), 2: Placed("b")}


@pytest.mark.parametrize(
    "text",
    [
        "rank,host,rack\n0,a,r1\n1,a,r1\n2,b,\n",
        "# my cluster\n0-1, a, r1\n2, b\n",
        "host,rack,rank\na,r1,0-1\nb,,2\n",
        "0-1 a r1\n2\tb\n",
        "rank;host;rack\n0;a;r1\n1;a;r1\n2;b\n",
        '{"0": {"host": "a", "rack": "r1"}, "1": {"host": "a", "rack": "r1"}, "2": "b"}',
        '[{"rank": "0-1", "host": "a", "rack": "r1"}, {"rank": 2, "host": "b"}]',
    ],
)
def test_hosts_are_read(tmp_path, text):
    (path := tmp_path / "hosts").write_text(text)
    assert read_hosts(path) == PLACED


@pytest.mark.parametrize(
    ("text", "why"),
    [("", "empty"), ("0,a\n0,b\n", "rank 0 is there twice"), ("x,y\n", "rank and host are needed"),
     ("0-1,a\nb,c\n", "'b' is no rank"), ('{"0": 3}', "entry 0"), ("# a\n0,a\n1\n", "line 3: 1: 1 cells"), ("[1", "Expecting"),
     ("3-1,a\n", "'3-1' ends before it begins"), ("0-9999999,a\n", "is no rank"),
     ('{"0": {"hostname": "a"}}', "neither host nor rack among hostname")],
)  # fmt: skip
def test_what_is_no_list_of_hosts_is_refused(tmp_path, text, why):
    (path := tmp_path / "hosts").write_text(text)
    with pytest.raises(InputError, match=why):
        read_hosts(path)


def test_a_list_of_hosts_goes_by_rank(tmp_path):
    (path := tmp_path / "hosts").write_text('["a", "a", "b"]')
    assert read_hosts(path) == {0: Placed("a"), 1: Placed("a"), 2: Placed("b")}


def test_the_file_outweighs_the_trace_and_the_trace_the_run():
    import pandas as pd

    parts = {rank: pd.DataFrame({"host": [host]}) for rank, host in ((0, "x"), (1, "y"), (2, None), (3, None))}
    table = trace.ranks_across(parts, {0: Placed("a", "r1")}, {1: "n1", 2: "n2"}).table
    assert table["host"].fillna("").tolist() == ["a", "y", "n2", ""]
    assert table["rack"].fillna("").tolist() == ["r1", "", "", ""]
