"""What answers hold, without a server."""

import pandas as pd
import pytest

from traceanalyzer.agents import QUESTIONS
from traceanalyzer.agents.verbs import MOST_CHARACTERS, NOTHING_FOUND, VERBS, of_rows
from traceanalyzer.analyses.base import chosen
from traceanalyzer.errors import UsageError

TABLE = pd.DataFrame(
    {
        "rank": [0, 1, 2],
        "wait_ns": pd.array([5, None, 20], dtype="Int64"),
        "name": ["ncclAllReduce", None, "gemm"],
        "is_open": [True, False, False],
    }
)


@pytest.mark.parametrize(
    ("where", "ranks"),
    [
        ([], [0, 1, 2]),
        (["rank=1"], [1]),
        (["rank!=1"], [0, 2]),
        (["wait_ns>5"], [2]),
        (["wait_ns>=5"], [0, 2]),
        (["wait_ns!=5"], [2]),
        (["wait_ns<1e3", "rank>0"], [2]),
        (["name~NCCL"], [0]),
        (["name=gemm"], [2]),
        (["is_open=true"], [0]),
    ],
)
def test_rows_are_chosen(where, ranks):
    assert chosen(TABLE, where)["rank"].tolist() == ranks


@pytest.mark.parametrize("where", ["rank", "rank>many", "nothing=1", ""])
def test_what_is_no_condition_is_refused(where):
    with pytest.raises(UsageError):
        chosen(TABLE, [where])


def test_an_answer_is_bounded_and_says_how_to_go_on():
    rows = [{"id": str(number), "text": "x" * 1000} for number in range(100)]
    answer = of_rows(rows, {"text": "Text."})
    assert len(answer.text()) <= MOST_CHARACTERS
    assert 0 < answer.cursor < answer.total_rows == 100
    assert of_rows(rows, {}, cursor=99).cursor is None
    with pytest.raises(UsageError, match="cursor 100 is beyond the last of 100 rows"):
        of_rows(rows, {}, cursor=100)


@pytest.mark.parametrize(
    "rows",
    [
        [{"id": "1", "evidence": [{"name": "x" * 9_000} for _ in range(60)]}] * 3,
        [{f"column_{number}": "ü" * 1_999 for number in range(30)}],
        [{f"column_{number}": number for number in range(3_000)}],
    ],
)
def test_no_row_and_no_sentence_breaks_the_bound(rows):
    columns = dict.fromkeys(rows[0], "d" * 300)
    answer = of_rows(rows, columns, said=["s" * 3_000] * 40, notes=["n" * 1_500] * 40)
    assert len(answer.text()) <= MOST_CHARACTERS
    assert "and 38 more, which the report has" in [*answer.said, *answer.notes] or answer.rows


@pytest.mark.parametrize("given", [{"cursor": -1}, {"top": 0}])
def test_a_cursor_that_was_never_given_is_refused(given):
    with pytest.raises(UsageError):
        of_rows([{"id": "1"}], {}, **given)


def test_no_rows_are_an_answer():
    answer = of_rows([], {}, none="there is none")
    assert (answer.status, answer.why) == (NOTHING_FOUND, "there is none")


def test_what_was_not_found_may_have_a_name_of_any_length():
    assert len(of_rows([], {}, none="x" * 50_000).text()) < MOST_CHARACTERS


def test_every_question_has_its_sentence():
    assert list(QUESTIONS) == list(VERBS)
