"""What to do about a late host, by what the table of operators says of it: more calls, or the same ones slower."""

from collections.abc import Mapping
from typing import Any

from traceanalyzer.analyses.operators.operators import Operators
from traceanalyzer.findings.beside import MoreCalls, more_calls, slow_host
from traceanalyzer.findings.late_words import OF_HOST, numbers, of_busy_host, of_slow_host
from traceanalyzer.meaning.names import short_name
from traceanalyzer.meaning.vocabulary import HOST


def with_advice(row: Mapping[str, Any], operators: Operators) -> Mapping[str, Any]:
    """An episode of one late host that nothing is named of, with what to do where operators tell why it is late."""
    late = numbers(row["ranks"])
    if row["cause"] != HOST.key or row["name"] is not None or len(late) > 1:
        return row
    if (busy := more_calls(operators, late[0])) is not None:
        return {**row, OF_HOST: of_busy_host(late[0], _most(busy))}
    if slow_host(operators, late[0]) is not None:
        return {**row, OF_HOST: of_slow_host(late[0])}
    return row


def _most(busy: MoreCalls) -> str:
    """`most of it aten::mm: 960 calls in the capture, rank 0's 480`."""
    first = busy.rows.iloc[0]
    calls = f"{first['calls']:,.0f} calls in the capture, {busy.others} {first['others_calls']:,.0f}"
    return f"most of it {short_name(str(first['operator']))}: {calls}"
