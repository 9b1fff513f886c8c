"""The job as a graph that can be run again: its replay, what-if, its critical path.

The graph is built a rank at a time (`rank_graph.piece_of`), joined over ranks by matched collectives and messages
(`job.Job`), and run with lengths as recorded or changed (`gains.Engine`). An analysis whose gains stand on it names
`replay` in its `across` and asks

    from traceanalyzer.analyses.replay.changes import Change
    from traceanalyzer.analyses.replay.replay import Replay

    def across(parts, replay: Replay) -> …:
        (gain,) = replay.engine.gains([(Change("rank", "peers", ranks=frozenset({7})),)])

where `replay.engine` is `None` without a graph (`replay.why_not`). A `Gain` is of the job's mean complete step:
`before_ns`, `after_ns`, `gain_ns`, `error_ns`. Changes of one tuple are made together; many tuples are run side by
side, far faster than one after the other. `Engine.steps` gives the steps themselves. `changes.PARTS` says what can be
changed, docs/what_if.md what it means.
"""
