"""What a pipeline loses where all messages of a rank follow each other on one stream."""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any

from traceanalyzer.analyses.pipelines.schedules import GPIPE, INTERLEAVED, ONE_F_ONE_B
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay
from traceanalyzer.analyses.replay.schedule_lengths import is_on_one_stream
from traceanalyzer.analyses.replay.schedule_orders import BACKWARD, FORWARD, order_of
from traceanalyzer.analyses.replay.schedule_play import Cost, Lengths, Outside, step_ns
from traceanalyzer.errors import UsageError

_ORDERS: Mapping[str, str] = MappingProxyType({GPIPE: "gpipe", ONE_F_ONE_B: "1f1b", INTERLEAVED: "interleaved"})

_WORTH = 0.02
"""Of the step: what streams of their own gain less than is not said."""


def held_up_ns(row: Mapping[str, Any], ranks: Sequence[int], ideal: Gain | None, replay: Replay) -> int:
    """What the ideal step would be shorter by, had messages of each neighbour and direction a stream of their own.

    A receive that waits holds up the sends behind it. The schedule is played with even stages, a backward pass twice as
    long as a forward one, hosts and messages that take no time: once with all of a rank's messages in one order, once
    with those of each peer and direction. 0 where they have streams of their own or the schedule is another one.
    """
    name = _ORDERS.get(row["schedule"] or "")
    if ideal is None or name is None or replay.engine is None or not is_on_one_stream(replay.engine.job, ranks):
        return 0
    chunks = row["stages_per_rank"] or 1
    try:
        order = order_of(name, len(ranks), row["microbatches"], chunks)
    except UsageError:  # microbatches that fill no groups: an order that is not known
        return 0
    of_pass = {
        (kind, stage): Cost(gpu_ns, 0.0, 0.0)
        for kind, gpu_ns in ((FORWARD, 1.0), (BACKWARD, 2.0))
        for stage in range(len(ranks) * chunks)
    }
    outside = dict.fromkeys(range(len(ranks)), Outside(Cost(0.0, 0.0, 0.0), is_blocking=True))
    together, apart = (step_ns(order, Lengths(of_pass, outside, 0.0, has_one_channel=one)) for one in (True, False))
    share = 1 - apart / together if together and apart else 0.0
    return round(ideal.after_ns * share) if share >= _WORTH else 0
