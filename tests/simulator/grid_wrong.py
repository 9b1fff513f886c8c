"""Places of the grid of which a report does not say the truth yet: docs/results/simulated_grid.md tells what it says."""

STILL_WRONG = frozenset(
    {
        "1f1b, host, half of the ranks",
        "1f1b, compute, another's file missing",
        "1f1b, chain, another's file missing",
        "1f1b, chain, its own file missing",
        "1f1b, chain, no steps",
        "interleaved, host, half of the ranks",
        "interleaved, host, another's file missing",
        "interleaved, compute, another's file missing",
        "interleaved, compute, its own file missing",
        "interleaved, copy, another's file missing",
        "interleaved, copy, its own file missing",
        "interleaved, loader, another's file missing",
        "interleaved, gc pause, another's file missing",
        "interleaved, chain, a node",
        "interleaved, chain, half of the ranks",
        "interleaved, chain, another's file missing",
        "interleaved, chain, its own file missing",
        "interleaved, chain, no steps",
    }
)
