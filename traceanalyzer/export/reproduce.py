"""One operator as a script of its own, with the shapes, strides and element types that the job called it with."""

import json
from typing import Any

import pandas as pd

from traceanalyzer.errors import InputError, UsageError
from traceanalyzer.functions import analyse
from traceanalyzer.kinds import element
from traceanalyzer.meaning import columns
from traceanalyzer.meaning.columns import Unit
from traceanalyzer.model import RankTrace, TraceSet

_SCRIPT = '''"""{title}

{facts}

It times the call with torch.utils.benchmark: python {file}
Values of arguments that are no tensors were {recorded}; UNKNOWN takes the operator's default.
Tensors of floating point are random, all others zero.
"""

import torch
from torch.utils import benchmark

DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
OPERATOR = torch.ops.{namespace}.{name}
UNKNOWN = object()


def tensor(shape, strides, dtype):
    """A tensor of that layout; elements that overlap (stride 0) are one."""
    size = 1 + sum((length - 1) * stride for length, stride in zip(shape, strides)) if 0 not in shape else 0
    values = torch.zeros(size, dtype=dtype, device=DEVICE)
    if dtype.is_floating_point:
        values.copy_(torch.randn(size, device=DEVICE))
    return values.as_strided(shape, strides)


ARGUMENTS = [
{arguments}
]


def completed(schema):
    """The arguments with the schema's defaults; None where they do not fit it."""
    made = []
    for given, wanted in zip(ARGUMENTS, schema.arguments):
        takes_tensors = "Tensor" in str(wanted.type)
        has_tensors = isinstance(given, (torch.Tensor, list)) and given != []
        if given is UNKNOWN:
            if not wanted.has_default_value():
                return None
            given = wanted.default_value
        elif has_tensors and not takes_tensors or not has_tensors and given is not None and takes_tensors:
            return None
        made.append(given)
    return made if len(ARGUMENTS) == len(schema.arguments) else None


def call():
    """The overload that the recorded arguments fit, and what to give it."""
    for name in OPERATOR.overloads():
        overload = getattr(OPERATOR, name)
        made = completed(overload._schema)
        if made is not None:
            names = [one.name for one in overload._schema.arguments]
            is_named = [one.kwarg_only for one in overload._schema.arguments]
            positional = [value for value, named in zip(made, is_named) if not named]
            return overload, positional, {{key: value for key, value, named in zip(names, made, is_named) if named}}
    raise SystemExit(
        "No overload takes these arguments with its defaults: replace UNKNOWN in ARGUMENTS by the values that your "
        "job uses.\\n" + "\\n".join(str(getattr(OPERATOR, name)._schema) for name in OPERATOR.overloads())
    )


if __name__ == "__main__":
    overload, positional, named = call()
    timer = benchmark.Timer("overload(*positional, **named)", globals=globals())
    print(timer.blocked_autorange(min_run_time=1))
    print("in the job: {job}")
'''


def reproduce(traces: TraceSet, operator: str, *, rank: int | None = None, variant: int = 0, file: str = "x.py") -> str:
    """A Python script that makes the operator's arguments and times it with `torch.utils.benchmark`.

    Args:
        traces: recorded by the PyTorch profiler with `record_shapes=True`.
        operator: name, such as `aten::mm`.
        rank: of whose calls; the first by default.
        variant: which combination of shapes, strides and element types: 0 has most GPU time, 1 the next.
        file: what the script will be called.

    Raises:
        InputError: the operator did not run, or its shapes were not recorded.
        UsageError: there is no such variant, or it is none of torch's operators.
    """
    trace = traces[0] if rank is None else traces.of_rank(rank)
    namespace, separator, name = operator.partition("::")
    if not separator or not f"{namespace}{name}".replace("_", "").isalnum():
        raise UsageError(f"{operator}: none of torch's operators; their names are such as aten::mm")
    alone = TraceSet(traces.label, (trace,))
    table = analyse(alone, "operator_shapes")["operator_shapes"].to_frame()
    rows = _variants(table, operator, trace.rank)
    if variant >= len(rows):
        raise UsageError(f"{operator} ran in {len(rows)} variants: the last is --variant {len(rows) - 1}")
    row = rows.iloc[variant]
    values = _values(trace, row)
    gpu = f"{_mean(row, 'gpu_total_ns')} on the GPU, " if row["gpu_total_ns"] else ""
    job = f"{gpu}{_mean(row, 'host_total_ns')} on the host, a mean of {row['calls']} calls"
    return _SCRIPT.format(
        title=f"{operator} as rank {trace.rank} of {json.dumps(traces.label)[1:-1]} called it {row['calls']} times.",
        facts=f"Variant {variant} of {len(rows)}; in the job {job}. Made by analyze-traces tools reproduce.",
        file=file,
        recorded="recorded" if values else "not recorded",
        namespace=namespace,
        name=name,
        arguments="\n".join(f"    {argument}," for argument in _arguments(row, values)),
        job=job,
    )


def _variants(table: pd.DataFrame, operator: str, rank: int) -> pd.DataFrame:
    """The operator's rows whose shapes are known, most GPU time first (without any, most host time)."""
    own = table[table["operator"] == operator]
    if own.empty:
        raise InputError(f"rank {rank} ran no operator called {operator}; analyze-traces --top 20 lists the longest")
    known = own[own["shapes"].notna() & own["dtypes"].notna()]
    if known.empty:
        raise InputError(f"the shapes of {operator} were not recorded; profile with record_shapes=True")
    keys = ["shapes", "strides", "dtypes"]
    sums = known.groupby(keys, dropna=False, observed=True)[["calls", "gpu_total_ns", "host_total_ns"]].sum()
    return sums.reset_index().sort_values(["gpu_total_ns", "host_total_ns"], ascending=False, kind="stable")


def _values(trace: RankTrace, row: pd.Series) -> list[str]:
    """Texts of the arguments' values, where the trace has them."""
    ops = trace.host_ops
    same = (ops["shapes"] == row["shapes"]) & (ops["dtypes"] == row["dtypes"]) & ops["arguments"].notna()
    return list(json.loads(ops.loc[same, "arguments"].iloc[0])) if same.any() else []


def _mean(row: pd.Series, column: str) -> str:
    return columns.in_a_line(row[column] / row["calls"], Unit.NS) if row["calls"] else "n/a"


def _arguments(row: pd.Series, values: list[str]) -> list[str]:
    shapes, dtypes = json.loads(row["shapes"]), json.loads(row["dtypes"])
    strides = json.loads(row["strides"]) if pd.notna(row["strides"]) else [_contiguous(shape) for shape in shapes]
    return [
        _argument(shape, stride, dtype, values[place] if place < len(values) else "")
        for place, (shape, stride, dtype) in enumerate(zip(shapes, strides, dtypes, strict=True))
    ]


def _argument(shape: Any, strides: Any, dtype: str, value: str) -> str:
    known = element(dtype)
    if known and known.torch:
        return f"tensor({tuple(shape)}, {tuple(strides)}, torch.{known.torch})"
    if dtype == "TensorList":
        raise InputError("it takes a list of tensors, of which the profiler does not record the element types")
    if value and dtype in ("Scalar", "ScalarList"):
        return _literal(value)
    return "UNKNOWN" if dtype in ("", "Scalar", "ScalarList") else f"UNKNOWN  # {json.dumps(dtype)}"


def _literal(value: str) -> str:
    """A recorded value as Python; what is no plain number, yes or no or list of them is left unknown."""
    try:
        plain = json.loads(value.lower().rstrip(".") if value.endswith(".") else value.lower())
    except ValueError:
        return "UNKNOWN"
    return repr(plain)


def _contiguous(shape: list[int]) -> list[int]:
    strides, step = [], 1
    for length in reversed(shape):
        strides.append(step)
        step *= length
    return strides[::-1]
