"""The waits of ranks in collectives as a table with a column for each collective."""

import pandas as pd

from traceanalyzer.analyses.communication.collective_waits import CollectiveWaits
from traceanalyzer.meaning.names import collective_words


def wait_matrix(result: CollectiveWaits) -> pd.DataFrame:
    """A row for each rank, the longest wait first; of several collectives also what it waits in all."""
    frame = result.to_frame()
    wide = frame.pivot_table(index="rank", columns="collective", values="wait_ns", aggfunc="first").astype("Int64")
    wide = wide[wide.sum().sort_values(ascending=False).index]
    wide.columns = [f"{collective_words(name)}_wait_ns" for name in wide]
    total = frame.drop_duplicates("rank").set_index("rank")["all_wait_ns"]
    table = wide.assign(wait_ns=total).reset_index() if len(wide.columns) > 1 else wide.reset_index()
    return table.sort_values(table.columns[-1], ascending=False, kind="stable", ignore_index=True)
