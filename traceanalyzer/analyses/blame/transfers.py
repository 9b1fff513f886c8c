"""What each rank's communication moves in a step, by collective and group: to say which transfer takes longer."""

import pandas as pd

from traceanalyzer.analyses.blame.rank_sets import listed
from traceanalyzer.model.tables import table_of

COLLECTIVE = "collective"

TRANSFER = "transfer_ns"

_AMONG = " among ranks "


def transfers(members: pd.DataFrame) -> pd.DataFrame:
    """Rows as `what_ran` has them, of part `transfer_ns`: by collective and group the summed transfers."""
    held = members[members["transfer_ns"].notna()] if len(members) else members
    if held.empty:
        return pd.DataFrame(columns=["rank", "step", "part", "what", "name", "total_ns"])
    once = held.drop_duplicates(["rank", "call"])
    # A call whose arguments the trace does not hold has no group.
    texts = {"collective": once["collective"], "group": once["group_ranks"]}
    names = table_of({column: values.astype("str").fillna("") for column, values in texts.items()})
    known = {pair: _name(*pair) for pair in names.drop_duplicates().itertuples(index=False)}
    name = [known[pair] for pair in names.itertuples(index=False)]
    step = once["step"].astype("Int64").fillna(-1).astype("int64")
    sums = once["transfer_ns"].astype("int64").groupby([once["rank"], step, pd.Series(name, once.index, name="name")])
    return sums.sum().rename("total_ns").reset_index().assign(part=TRANSFER, what=COLLECTIVE)


def _name(collective: str, ranks: str) -> str:
    """`all-gather among ranks 4 to 7`."""
    called = collective.replace("_", "-") or "communication"
    numbers = ranks.split(",")
    if not all(number.strip().isdigit() for number in numbers):
        return called
    return f"{called}{_AMONG}{listed([int(number) for number in numbers])}"


def collective_of(name: str) -> str:
    """The name without its group."""
    return name.partition(_AMONG)[0]
