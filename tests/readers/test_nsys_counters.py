"""Metrics of GPUs go to the rank that used the GPU; those of network cards to every rank of the machine."""

import pytest

from tests.nsys_builders import EPOCH_NS, export, kernel, read_all, write_sqlite

TYPE = 0x1000100000000


def sample(time, metric, value, gpu=0):
    return {"rawTimestamp": 0, "timestamp": time, "typeId": TYPE + gpu, "metricId": metric, "value": value}


def named(metric, name, gpu=0):
    return {"typeId": TYPE + gpu, "sourceId": TYPE, "typeName": "", "metricId": metric, "metricName": name}


def metrics():
    return {
        "GPU_METRICS": [
            sample(20, 3, 50), sample(-10, 3, 10), sample(20, 0, 1_980_000_000), sample(20, 3, 99, gpu=1),
            sample(30, 8, 5),
        ],
        "TARGET_INFO_GPU_METRICS": [
            named(3, "SMs Active [Throughput %]"), named(0, "GPC Clock Frequency [MHz]"),
            named(3, "SMs Active [Throughput %]", gpu=1),
        ],
    }  # fmt: skip


def plain(trace):
    return [
        (time - EPOCH_NS, name, value) for time, name, value, *_ in trace.counters.itertuples(index=False, name=None)
    ]


def test_gpu_metrics(tmp_path):
    (trace,) = read_all(write_sqlite(tmp_path / "r.sqlite", export() | metrics()))
    assert plain(trace) == [
        (-10, "SMs Active [Throughput %]", 10.0),
        (20, "SMs Active [Throughput %]", 50.0),
        (20, "GPC Clock Frequency [MHz]", 1980.0),  # recorded in Hz
        (30, "metric 8", 5.0),
    ]


def test_the_gpu_is_the_machines_not_the_process_own_number(tmp_path):
    devices = [{"gpuId": 1, "cudaId": 0, "pid": 100}]
    tables = export() | metrics() | {"TARGET_INFO_CUDA_DEVICE": devices}
    (trace,) = read_all(write_sqlite(tmp_path / "r.sqlite", tables))
    assert plain(trace) == [(20, "SMs Active [Throughput %]", 99.0)]


@pytest.mark.parametrize("value", [7, 7.25])
def test_network_cards(tmp_path, value):
    tables = export() | {
        "CUPTI_ACTIVITY_KIND_KERNEL": [kernel(1, 2), kernel(1, 2, process=200, device=1)],
        "NET_NIC_METRIC": [
            {"start": 5, "end": 6, "globalId": 44, "portId": 1, "metricsListId": 2, "metricsIdx": 1, "value": value},
            {"start": 7, "end": 8, "globalId": 45, "portId": 1, "metricsListId": 2, "metricsIdx": 9, "value": None},
        ],
        "NIC_ID_MAP": [{"nicId": 1, "globalId": 44}],
        "TARGET_INFO_NIC_INFO": [{"nicId": 1, "name": "mlx5_0"}],
        "TARGET_INFO_NETWORK_METRICS": [
            {"metricsListId": 2, "metricsIdx": 1, "name": "Bytes sent", "description": "", "unit": "B/ms"}
        ],
    }
    first, second = read_all(write_sqlite(tmp_path / "r.sqlite", tables))
    assert plain(first)[0] == plain(second)[0] == (5, "mlx5_0: Bytes sent [B/ms]", float(value))
    assert first.counters["name"].tolist()[1] == "NIC 45: metric 9"
    assert first.counters["value"].isna().tolist() == [False, True]
