"""The setting of pandas that the library changes while it works."""

import pandas as pd
import pytest

from traceanalyzer.model.tables import texts_in_python

NAME = "mode.string_storage"


@pytest.fixture(params=["auto", "pyarrow", "python"])
def before(request):
    with pd.option_context(NAME, request.param):
        yield request.param


def test_the_last_of_several_threads_that_ends_puts_back_what_the_first_one_found(before):
    first, second = texts_in_python(), texts_in_python()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert pd.get_option(NAME) == "python", "the second one still works"
    second.__exit__(None, None, None)
    assert pd.get_option(NAME) == before


def test_it_is_put_back_when_the_work_fails(before):
    with pytest.raises(ZeroDivisionError), texts_in_python(), texts_in_python():
        raise ZeroDivisionError
    assert pd.get_option(NAME) == before


def test_what_the_user_sets_meanwhile_stays():
    with pd.option_context(NAME, "auto"):
        with texts_in_python():
            pd.set_option(NAME, "pyarrow")
        assert pd.get_option(NAME) == "pyarrow"
