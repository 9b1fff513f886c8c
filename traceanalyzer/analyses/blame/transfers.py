"""What each rank's communication moves in a step, by collective and group: to say which transfer takes longer."""

import pandas as pd

from traceanalyzer.kinds import MESSAGES, POINT_TO_POINT
from traceanalyzer.meaning.listed import listed
from traceanalyzer.meaning.names import collective_words
from traceanalyzer.meaning.number_lists import numbers
from traceanalyzer.model.tables import without_rows

COLLECTIVE = "collective"

TRANSFER = "transfer_ns"

_AMONG = " among ranks "


def transfers(slower: pd.DataFrame) -> pd.DataFrame:
    """Rows as `what_ran` has them, of part `transfer_ns`: by collective and group what its calls take longer."""
    if slower.empty:
        return without_rows(["rank", "step", "part", "what", "name", "total_ns"])
    once = slower.sort_values("longer_ns", ascending=False, kind="stable").drop_duplicates(["rank", "call"])
    pairs = once[["collective", "among"]].astype("str")
    known = {pair: _name(*pair) for pair in pairs.drop_duplicates().itertuples(index=False)}
    name = [known[pair] for pair in pairs.itertuples(index=False)]
    step = once["step"].astype("Int64").fillna(-1).astype("int64")
    sums = once["longer_ns"].groupby([once["rank"], step, pd.Series(name, once.index, name="name")])
    return sums.sum().rename("total_ns").reset_index().assign(part=TRANSFER, what=COLLECTIVE)


def _name(collective: str, ranks: str) -> str:
    """`all-gather among ranks 4 to 7`; `messages among ranks 1 and 2`: one's send is the other's receive."""
    what = MESSAGES if collective in POINT_TO_POINT else collective_words(collective)
    return f"{what}{_AMONG}{listed(numbers(ranks))}"


def collective_of(name: str) -> str:
    """The name without its group."""
    return name.partition(_AMONG)[0]
