"""Places of the grid of which a report does not say the truth yet: docs/results/simulated_grid.md tells what it says."""

STILL_WRONG = frozenset(
    {
        "1f1b, host, half of the ranks",
        "1f1b, chain, no steps",
        "interleaved, host, half of the ranks",
        "interleaved, chain, a node",
        "interleaved, chain, half of the ranks",
        "interleaved, chain, no steps",
    }
)
