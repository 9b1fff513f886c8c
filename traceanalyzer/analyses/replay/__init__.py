"""The job as a graph that can be run again: its replay, what-if, its critical path.

The graph is built a rank at a time (`build.piece_of`), joined over ranks by matched collectives and messages
(`job.Job`), and run with lengths as recorded or changed (`gains.Engine`). An analysis whose gains stand on it names
`replay` in its `across` and asks

    from traceanalyzer.analyses.replay.changes import Change
    from traceanalyzer.analyses.replay.replay import Replay, gain_of

    def across(parts, replay: Replay) -> …:
        gain = gain_of(replay, Change("rank", "peers", ranks=frozenset({7})))

which is `None` where there is no graph (`replay.why_not`), else a `Gain` of the job's mean complete step: `before_ns`,
`after_ns`, `gain_ns`, `error_ns`. Several changes are made together: `gain_of(replay, *changes)`; `gains_of(replay,
scenarios)` runs many sets of changes side by side, far faster than one after the other. For ranks, hosts and groups:
`Change("host", "peers", ranks, steps)`, `Change("compute", "peers", …)`, `Change("copy", "peers", …)`,
`Change("data", 0.0, …)`, `Change("sync", 0.0, …)`, `Change("kernel", 0.0, name=…)`, `Change("operator", 0.5, name=…)`.
docs/replay.md has the definitions.
"""
