"""Places of the grid of which a report does not say the truth yet: docs/results/simulated_grid.md tells what it says."""

STILL_WRONG = frozenset(
    {
        "1f1b, host, half of the ranks",
        "1f1b, loader, one rank",
        "1f1b, other group's communication, one rank",
        "1f1b, other group's communication, in turn",
        "1f1b, other group's communication, once",
        "1f1b, other group's communication, first instance",
        "1f1b, other group's communication, last step",
        "1f1b, other group's communication, one complete step",
        "1f1b, other group's communication, another's file missing",
        "1f1b, other group's communication, cut file",
        "1f1b, other group's communication, no steps",
        "1f1b, chain, no steps",
        "interleaved, host, half of the ranks",
        "interleaved, other group's communication, one rank",
        "interleaved, other group's communication, in turn",
        "interleaved, other group's communication, once",
        "interleaved, other group's communication, first instance",
        "interleaved, other group's communication, last step",
        "interleaved, other group's communication, one complete step",
        "interleaved, other group's communication, another's file missing",
        "interleaved, other group's communication, cut file",
        "interleaved, other group's communication, no steps",
        "interleaved, chain, a node",
        "interleaved, chain, half of the ranks",
        "interleaved, chain, no steps",
    }
)
