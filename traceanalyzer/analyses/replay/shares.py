"""Many sets of changes that forks of this process replay, each its share."""

from collections.abc import Sequence
from functools import partial

from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gains import Engine
from traceanalyzer.forks import FREE, all_aside

WORTH_A_SHARE = 1_000_000
"""Operations, for each set of changes, that take a quarter of a second to replay: a fork takes some hundredths."""


def replay_at_once(engine: Engine, scenarios: Sequence[tuple[Change, ...]]) -> None:
    """Have the engine know what each set of changes gains, which is the same with any number of processes."""
    operations = sum(len(nodes.piece) for nodes in engine.job.nodes.values())
    shares = min(FREE.get(), len(scenarios) - 1, operations * len(scenarios) // WORTH_A_SHARE)
    if shares < 2:
        return
    engine.gains(scenarios[:1])  # what all of them need is found out once, not in each fork

    def known(share: int) -> dict[tuple[Change, ...], int]:
        engine.gains(scenarios[1 + share :: shares])
        return engine.mean_steps

    begun = all_aside([partial(known, share) for share in range(1, shares)], processes=shares)
    known(0)
    for wait in begun:
        engine.mean_steps |= wait()
