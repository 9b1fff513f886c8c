"""Places of the grid of which a report does not say the truth yet: docs/results/simulated_grid.md tells what it says."""

STILL_WRONG = frozenset(
    {
        "interleaved, chain, a node",
        "interleaved, chain, half of the ranks",
    }
)
