"""The command's exit codes."""

DONE = 0

GATE_FAILED = 1
"""A condition of `--fail-on` holds."""

USAGE_OR_INPUT = 2

PARTIAL = 3
"""A report was written, but a bug of ours kept parts of it from being computed: its notes name them."""

INCONCLUSIVE = 4
"""No gate failed, but the repeats cannot tell one from noise; `--inconclusive` chooses another code."""

CANNOT_JUDGE = 5
"""No condition holds, but the figure of one is missing, or the report marks it as doubtful."""

BUG = 70
"""Nothing was written, because of a bug of ours."""

INTERRUPTED = 130

TERMINATED = 143
"""Ended by SIGTERM or SIGHUP, as a scheduler does: nothing half-written is left."""
