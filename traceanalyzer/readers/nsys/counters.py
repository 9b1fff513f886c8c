"""What was sampled beside the events: metrics of each GPU, and of the network cards."""

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.compute as pc

from traceanalyzer.readers.nsys.source import Source, category, int_values, text_values

GPU_METRICS = "GPU_METRICS"
NIC_METRICS = "NET_NIC_METRIC"
_GPU_NAMES = "TARGET_INFO_GPU_METRICS"
_NIC_NAMES = "TARGET_INFO_NETWORK_METRICS"
_CARDS = "TARGET_INFO_NIC_INFO"
_CARD_IDS = "NIC_ID_MAP"
COUNTER_TABLES = (GPU_METRICS, NIC_METRICS, _GPU_NAMES, _NIC_NAMES, _CARDS, _CARD_IDS)

# Labelled [MHz], recorded in Hz.
_HERTZ_ABOVE = 1e5


def read_counters(source: Source) -> pd.DataFrame:
    """Samples with the columns of `model.COUNTERS`, and `gpu` (-1: of the machine, not of one GPU).

    Names are those of Nsight Systems, with the unit in brackets; times are the export's own.
    """
    return pd.concat([_gpu_metrics(source), _nic_metrics(source)], ignore_index=True).astype({"name": "category"})


def _gpu_metrics(source: Source) -> pd.DataFrame:
    rows = source.read(GPU_METRICS, ints=("timestamp", "typeId", "metricId"), floats=("value",))
    named = source.read(_GPU_NAMES, ints=("typeId", "metricId"), texts=("metricName",))
    names = dict(
        zip(
            zip(int_values(named, "typeId").tolist(), int_values(named, "metricId").tolist(), strict=True),
            text_values(named, "metricName"),
            strict=True,
        )
    )
    kind, metric = int_values(rows, "typeId"), int_values(rows, "metricId")
    codes, keys = pd.factorize(pd.MultiIndex.from_arrays([kind, metric]))
    labels = [names.get((int(one), int(number))) or f"metric {number}" for one, number in keys]
    value = _floats(rows, "value")
    in_hertz = np.array(["[MHz]" in label for label in labels], dtype=bool)[codes] & (value > _HERTZ_ABOVE)
    return pd.DataFrame(
        {
            "time_ns": int_values(rows, "timestamp", 0),
            "name": category(codes, labels),
            "value": np.where(in_hertz, value / 1e6, value),
            "gpu": kind & 0xFFFFFFFF,  # the rest of a type's id is the machine
        }
    )


def _nic_metrics(source: Source) -> pd.DataFrame:
    keys = ("metricsListId", "metricsIdx")
    rows = source.read(NIC_METRICS, ints=("start", "globalId", *keys), floats=("value",))
    cards, metrics = _card_names(source), _nic_metric_names(source)
    codes, distinct = pd.factorize(pd.MultiIndex.from_arrays([int_values(rows, name) for name in ("globalId", *keys)]))
    labels = [
        f"{cards.get(int(card), f'NIC {card}')}: {metrics.get((int(group), int(one)), f'metric {one}')}"
        for card, group, one in distinct
    ]
    return pd.DataFrame(
        {
            "time_ns": int_values(rows, "start", 0),
            "name": category(codes, labels),
            "value": _floats(rows, "value"),
            "gpu": np.full(len(rows), -1),
        }
    )


def _card_names(source: Source) -> dict[int, str]:
    info = source.read(_CARDS, ints=("nicId",), texts=("name",))
    names = dict(zip(int_values(info, "nicId").tolist(), text_values(info, "name"), strict=True))
    joined = source.read(_CARD_IDS, ints=("nicId", "globalId"))
    pairs = zip(int_values(joined, "nicId").tolist(), int_values(joined, "globalId").tolist(), strict=True)
    return {card: names[nic] for nic, card in pairs if names.get(nic)}


def _nic_metric_names(source: Source) -> dict[tuple[int, int], str]:
    rows = source.read(_NIC_NAMES, ints=("metricsListId", "metricsIdx"), texts=("name", "unit"))
    fields = (
        int_values(rows, "metricsListId").tolist(), int_values(rows, "metricsIdx").tolist(),
        text_values(rows, "name"), text_values(rows, "unit"),
    )  # fmt: skip
    return {(group, one): f"{name} [{unit}]" if unit else name for group, one, name, unit in zip(*fields, strict=True)}


def _floats(rows: pa.Table, name: str) -> np.ndarray:
    values = pc.fill_null(rows[name], float("nan")).to_numpy()
    return np.where(np.isfinite(values), values, np.nan)
