"""All-to-alls with split sizes: bytes and load."""

import pandas as pd
import pytest

from tests.samples import sample
from traceanalyzer.analyses import experts, run
from traceanalyzer.analyses.experts import COMBINE, DISPATCH

CALL = {"call": 0, "step": 0, "collective": "all_to_all", "group": "0", "group_ranks": "0,1", "dtype": "BFloat16",
        "in_elements": 800, "out_elements": 1_000, "in_split": "6,2", "out_split": "6,4",
        "size_bytes": pd.NA, "group_size": pd.NA}  # fmt: skip

IN_BYTES = {"dtype": None, "in_elements": pd.NA, "out_elements": pd.NA, "in_split": "600,200", "out_split": "700,300",
            "size_bytes": 800}  # fmt: skip


def calls(*rows):
    integers = dict.fromkeys(("step", "in_elements", "out_elements", "size_bytes", "group_size"), "Int64")
    return pd.DataFrame([CALL | row for row in rows]).astype(integers)


@pytest.mark.parametrize(
    ("row", "sends", "receives"),
    [
        ({}, (1_200, 400), (1_200, 800)),
        ({"in_split": None}, (800, 800), (1_200, 800)),
        ({"in_elements": 0, "in_split": "0,0"}, (0, 0), (1_200, 800)),
        ({"group_ranks": "4,9"}, (1_200, 400), (1_200, 800)),
        (IN_BYTES, (600, 200), (700, 300)),
    ],
)
def test_bytes_by_split_sizes(row, sends, receives):
    own = experts.of_calls(calls(row))
    assert (own["sends"].tolist(), own["receives"].tolist()) == ([sends], [receives])


def test_a_capture_of_uneven_experts():
    results = run(
        sample("moe").ranks,
        ["exchange_sends", "expert_layers", "exchanges"],
    )
    frame = results["exchange_sends"].to_frame().query("direction == 'dispatch'")
    # 6,144 and 2,048 rows of 2,048 bf16 from rank 0; 5,120 and 3,072 from rank 1; six dispatches in each of three steps.
    rows = frame.set_index(["rank", "peer"])["size_bytes"] / (18 * 2_048 * 2)
    assert rows.to_dict() == {(0, 0): 6_144, (0, 1): 2_048, (1, 0): 5_120, (1, 1): 3_072}
    layers = results["expert_layers"].to_frame()
    assert layers["direction"].tolist() == [*[DISPATCH] * 3, *[COMBINE] * 3] * 6
    assert set(layers.query("direction == 'dispatch'")["load_max_over_mean"]) == {11_264 / 8_192}
    first = results["exchanges"].to_frame().query("step == 1 and place == 0")
    assert first["sends"].tolist() == ["25165824,8388608", "20971520,12582912"]


def test_ranks_that_receive_as_much_have_no_hot_one_and_unequal_counts_are_not_compared():
    results = run(sample("moe").ranks, ["expert_layers", "exchanges", "groups"])
    layers, held = results["expert_layers"].to_frame(), results["exchanges"].table
    even = experts.expert_layers_across(experts.Exchanges(held.assign(load_bytes=1)), results["groups"]).to_frame()
    assert len(even) == len(layers)
    assert even["hot_rank"].isna().all()
    assert layers.query("direction == 'dispatch'")["hot_rank"].tolist() == [0] * 18
    fewer = held.drop(index=held[(held["rank"] == 1) & (held["step"] == 1)].index[-1])
    left = experts.expert_layers_across(experts.Exchanges(fewer), results["groups"]).to_frame()
    assert len(layers.query("step != 1")) == len(left) > 0
    none = experts.expert_layers_across(experts.Exchanges(fewer.query("step == 1")), results["groups"])
    assert none.to_frame().empty
