"""Which phase launched what, and that phases add up to the breakdown."""

import pytest

from tests import once
from tests.samples import OF_EACH_KIND


@pytest.mark.parametrize("name", OF_EACH_KIND)
def test_phases_add_up_on_samples(name):
    results = once.results(name, ["phases", "breakdown", "steps", "comm_phases"])
    phases = results["phases"].to_frame()
    names = ["compute_ns", "exposed_comm_ns", "exposed_copy_ns", "idle_ns"]
    whole = phases[phases["step"].isna()].groupby("rank")[names].sum()
    breakdown = results["breakdown"].to_frame().set_index("rank")
    assert whole.to_numpy().tolist() == breakdown[names].to_numpy().tolist()
    assert (phases.groupby(["rank", "step"], dropna=False)["share_pct"].sum().sub(100).abs() < 1e-6).all()
    steps = results["steps"].to_frame().dropna(subset=["idle_ns"])
    by_step = phases.dropna(subset=["step"]).groupby(["rank", "step"])[names].sum()
    assert by_step.to_numpy().tolist() == steps[names].to_numpy().tolist()
    comm_phases = results["comm_phases"].to_frame()
    assert comm_phases["exposed_ns"].sum() == breakdown["exposed_comm_ns"].sum()


def test_ddp_knows_its_phases():
    frame = once.results("ddp", ["phases"])["phases"].to_frame()
    whole = frame[frame["step"].isna() & (frame["rank"] == 0)].set_index("phase")["operations"]
    assert whole.to_dict() == {"forward": 828, "backward": 2736, "optimizer": 33, "data": 3, "unattributed": 3}
