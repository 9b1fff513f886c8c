"""Tables without rows have their schema's columns and types, and are nobody else's."""

import pandas as pd
import pytest

from traceanalyzer.model.schema import STEPS, TABLES, conform

SCHEMAS = {**TABLES, "steps": STEPS}


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_table_that_is_not_given_is_one_without_rows(name):
    made = conform(None, SCHEMAS[name])
    pd.testing.assert_frame_equal(made, conform(pd.DataFrame(), SCHEMAS[name]))
    assert {column: str(dtype) for column, dtype in made.dtypes.items()} == dict(SCHEMAS[name])
    made["own"] = 1
    assert "own" not in conform(None, SCHEMAS[name])
