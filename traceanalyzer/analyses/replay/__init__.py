"""The job as a graph that can be run again: its replay, what-if, its critical path.

The graph is built a rank at a time (`rank_graph.piece_of`), joined over ranks by matched collectives and messages
(`job.Job`), and run with lengths as recorded or changed (`replay.Engine`). An analysis whose gains stand on it names
`replay` in its `across` and asks

    from traceanalyzer.analyses.replay.changes import Change
    from traceanalyzer.analyses.replay.replay import Replay

    def across(parts, replay: Replay) -> …:
        before, after = replay.engine.steps([(), (Change("rank", "peers", ranks=frozenset({7})),)]).mean(axis=0)

where `replay.engine` is `None` without a graph (`replay.why_not`). A row is a complete step of the job in ns, a column
a set of changes, made together: many are run side by side, far faster than one after the other. `findings/savings.py`
makes intervals of them. `changes.PARTS` says what can be changed, docs/what_if.md what it means.
"""
