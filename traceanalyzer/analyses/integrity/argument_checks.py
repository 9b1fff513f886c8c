"""What is not known of communication operations' arguments, check by check."""

import pandas as pd

from traceanalyzer.analyses.communication.call_lists import waits_of
from traceanalyzer.analyses.communication.inferred import INFERRED
from traceanalyzer.analyses.communication.operator_arguments import OPERATOR
from traceanalyzer.analyses.integrity.integrity_checks import Defect, by_share, have, many
from traceanalyzer.kinds import WAIT_ONLY
from traceanalyzer.meaning.listed import part_of
from traceanalyzer.meaning.severities import INFO
from traceanalyzer.model.tables import column_of


def communication_without_arguments(calls: pd.DataFrame) -> list[Defect]:
    """Communication kernels without arguments, of their own or of a host operation."""
    if calls.empty:
        return []
    is_kernel = ((calls["collective"] != "peer_copy") & (waits_of(calls) != WAIT_ONLY)).to_numpy()
    count, total = int(column_of(calls, "arguments").isna()[is_kernel].sum()), int(is_kernel.sum())
    text = (
        f"{part_of(count, total, 'communication operation')} {have(count)} no arguments: process group and sizes "
        "are unknown, bandwidths leave them out."
    )
    return (
        [Defect("communication_without_arguments", by_share(count, total), count, total, text, ("calls",))]
        if count
        else []
    )


def arguments_of_operators(calls: pd.DataFrame) -> list[Defect]:
    """Communication kernels whose bytes are those of the operator that launched them."""
    count = int((calls["arguments"] == OPERATOR).sum()) if len(calls) else 0
    text = (
        f"The sizes of {many(count, 'communication operation')} are those of the operators that launched them; their "
        "process groups are not known."
    )
    return [Defect("arguments_of_operators", INFO, count, len(calls), text, ("calls",))] if count else []


def inferred_arguments(calls: pd.DataFrame) -> list[Defect]:
    """Communication kernels whose arguments are those of the same position in a later step."""
    count = int((calls["arguments"] == INFERRED).sum()) if len(calls) else 0
    text = f"The arguments of {many(count, 'communication operation')} are inferred from later steps."
    return [Defect("inferred_arguments", INFO, count, len(calls), text, ("calls",))] if count else []
