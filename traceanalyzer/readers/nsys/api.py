"""The CUDA runtime and driver calls of all processes of an export."""

import re

import numpy as np
import pandas as pd

from traceanalyzer.model.event_times import UNKNOWN_NS
from traceanalyzer.readers.nsys.ids import process_of, thread_of
from traceanalyzer.readers.nsys.source import Source, category, int_values, is_known

RUNTIME = "CUPTI_ACTIVITY_KIND_RUNTIME"

# "cudaMemcpyAsync_v3020": the CUDA version in which this form came. The driver's own "_v2" is part of a name.
_VERSION = re.compile(r"_v\d{4,}$")


def read_api_calls(source: Source) -> pd.DataFrame:
    """Calls with the columns of `model.API_CALLS`, and `process`; times are the export's own."""
    rows = source.read(RUNTIME, ints=("start", "end", "globalTid", "correlationId", "nameId"))
    codes, distinct = pd.factorize(int_values(rows, "nameId"))
    texts = source.strings(distinct)
    names = [_VERSION.sub("", texts.get(int(one)) or "(call without a name)") for one in distinct]
    thread = int_values(rows, "globalTid", 0)
    start = int_values(rows, "start", UNKNOWN_NS)
    return pd.DataFrame(
        {
            "process": process_of(thread),
            "start_ns": start,
            "end_ns": np.where(is_known(rows, "end"), int_values(rows, "end", 0), start),
            "name": category(codes, names),
            "thread": thread_of(thread),
            "correlation": int_values(rows, "correlationId"),
        },
        copy=False,
    )
