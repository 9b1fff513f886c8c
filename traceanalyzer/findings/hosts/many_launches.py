"""The rule about loops of launches: a host that launches the same for one tensor, or sample, after the other."""

import pandas as pd

from traceanalyzer.analyses.blame.episodes import Episodes
from traceanalyzer.analyses.blame.places import Places
from traceanalyzer.analyses.host import host_names
from traceanalyzer.analyses.operators.launch_loops import LaunchLoops
from traceanalyzer.analyses.replay.change import Change
from traceanalyzer.analyses.replay.gain import Gain
from traceanalyzer.analyses.replay.replay import Replay, gains_of
from traceanalyzer.analyses.time.headline import Headline
from traceanalyzer.analyses.time.steps import Steps
from traceanalyzer.findings.basis import CLEAR_GAIN_PCT, Basis, basis_of_operators, plain, severity, steps_of_operators
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.host_shares import HostShares, host_shares
from traceanalyzer.findings.hosts.checked_values import CHECKS
from traceanalyzer.findings.late.host_story import lateness_or_hosts
from traceanalyzer.findings.won import Title, Won
from traceanalyzer.meaning.quantities import digits, time_text

LOOP_LAUNCHES = 50
"""Of a step, in one loop."""

LOOP_PCT = 5.0
"""Of a step, which a host takes for one loop."""

_MOST = 3

_OF_OPTIMIZER = (
    "Update all parameters at once: fused=True or foreach=True of PyTorch's optimizers, torch._foreach_mul_ and the "
    "like in one of your own."
)

_OF_TENSORS = (
    "Take all tensors at once: torch._foreach_mul_, torch._foreach_lerp_ and the like take lists of them (averages of "
    "parameters: torch.optim.swa_utils.get_ema_multi_avg_fn; norms of gradients: torch.nn.utils.clip_grad_norm_)."
)

_COPY = "aten::copy_"

_COPIES_ALONE = r"Mem(?:cpy|set) [^,]*(?:, Mem(?:cpy|set) [^,]*)*"
"""Turns that nothing but copies: rules about copies tell of these."""

_OF_COPIES = (
    "Copy all tensors at once (torch._foreach_copy_). Gradients that DistributedDataParallel copies into its buckets "
    "and back need no copy with gradient_as_bucket_view=True."
)

_OF_TURNS = (
    "If a turn does not need the result of another (samples, classes), stack their tensors and compute all at once "
    "(torch.vmap makes a function of one into one of many). If it does, replay the loop as a CUDA graph, or let "
    "torch.compile fuse a turn."
)

_WAITING = (
    " It waits for the GPU, too: indexing by a boolean mask, nonzero and .item() ask it for a number. torch.where "
    "and products with the mask keep shapes and wait for nothing; or index once for all turns."
)


def many_launches(
    headline: Headline, steps: Steps, launch_loops: LaunchLoops, episodes: Episodes, places: Places, replay: Replay, *,
    loop_launches: int = LOOP_LAUNCHES, loop_pct: float = LOOP_PCT, clear_gain_pct: float = CLEAR_GAIN_PCT,
) -> list[Finding]:  # fmt: skip
    """A host launches in a loop, 50 times a step and more, for 5 % of a step, and 3 % would go with one turn of it.

    The three that gain most. Turns with products of matrices may be layers, which need each other, and are not told;
    those of copies alone, and checks of values, have rules of their own.
    The gain is of the job replayed with the host's work of one turn a run, and no waits within; at most that where
    turns launch alike and may need each other's results.
    """
    if not len(headline) or not len(launch_loops):
        return []
    basis = basis_of_operators(steps, Basis.of(headline, steps))
    table = _often(launch_loops, steps_of_operators(steps, basis), loop_launches)
    told = [each for _, own in table.groupby("loop", sort=False) if (each := _worst(own, basis, loop_pct))]
    gains = gains_of(replay, [(_once(row, shares),) for row, shares in told]) if told else None
    of_each: list[Gain | None] = [*gains] if gains else [None] * len(told)
    found = [
        _found(row, shares, gain, basis, episodes, places, clear_gain_pct)
        for (row, shares), gain in zip(told, of_each, strict=True)
        if gain is None or 100 * gain.gain_ns >= clear_gain_pct * gain.before_ns
    ]
    return sorted(found, key=lambda each: -(each.expected_ns or 0))[:_MOST]


def _often(launch_loops: LaunchLoops, per: pd.Series, least: int) -> pd.DataFrame:
    """Loops that launch as often as that, with `a_step` launches and `host_a_step_ns` of a mean step."""
    table = launch_loops.table
    each = table["rank"].map(per).astype("float64")
    table = table.assign(a_step=table["launches"] / each, host_a_step_ns=table["host_ns"] / each)
    is_check = table["loop"].astype("str").str.contains("|".join(CHECKS))
    is_copy = table["of_uploads"].astype(bool) | table["loop"].astype("str").str.fullmatch(_COPIES_ALONE)
    return table[(table["a_step"] >= least) & ~(table["has_products"].astype(bool) | is_copy | is_check)]


def _worst(own: pd.DataFrame, basis: Basis, least_pct: float) -> tuple[pd.Series, HostShares] | None:
    """The rank whose host takes longest for the loop, with what part of a step that is."""
    by_rank = own.set_index("rank")["host_a_step_ns"].astype("float64")
    rank = int(by_rank.idxmax())
    shares = host_shares(by_rank, rank, basis, least_pct)
    return None if shares is None else (own.loc[own["rank"] == rank].iloc[0], shares)


def _once(row: pd.Series, shares: HostShares) -> Change:
    """One turn of each run."""
    return Change("loop", 0.0, frozenset(shares.ranks), name=str(row["loop"]))


def _found(
    row: pd.Series,
    shares: HostShares,
    gain: Gain | None,
    basis: Basis,
    episodes: Episodes,
    places: Places,
    clear_gain_pct: float,
) -> Finding:
    rank, host_ns = int(row["rank"]), float(row["host_a_step_ns"])
    is_by_tensor = bool(row["of_sizes"]) or _is_of_optimizer(row)
    won = _won(row, gain, host_ns, is_bound=not is_by_tensor)
    each = " tensor by tensor" if is_by_tensor else ""
    expected_ns = won.gain_ns if won.unprofiled_ns is None else won.unprofiled_ns
    expected_pct = 100 * expected_ns * basis.per / float(basis.window_ns[rank])
    return Finding(
        severity=severity(expected_pct),
        title=Title(
            f"Rank {rank}'s host launches {digits(float(row['a_step']))} operations {basis.a_step}{each} in "
            f"{loops(row)} ({row['loop']}): {time_text(host_ns)}, {shares.pct:.0f} % {basis.of_a_step}"
            f"{shares.also(places)}. With one turn for all of them {basis.whole} would be ",
            won,
            ".",
        ),
        evidence=plain(pd.DataFrame([row]).drop(columns=["a_step", "host_a_step_ns"])),
        recommendation=_advice(row),
        caveat="In the gain kernels take as long as recorded: fewer, larger ones take less. A profiler slows the host.",
        gain_ns=won.gain_ns,
        gain_error_ns=gain.error_ns if gain else None,
        gain_is_bound=won.is_bound,
        unprofiled_gain_ns=gain.unprofiled_gain_ns if gain else None,
        is_of_hosts=True,
        named=shares.named(rank),
        table="launch_loops",
        is_to_do_first=expected_pct >= clear_gain_pct,
        part_of=lateness_or_hosts(rank, episodes),
    )


def loops(row: pd.Series) -> str:
    """`a loop of 160 turns`, `12 loops of 12 turns each`, `14 loops of 17 turns on average`: of a mean step."""
    runs, turns = round(row["runs"] * row["a_step"] / row["launches"]), row["turns"] / row["runs"]
    if runs <= 1:
        return f"a loop of {digits(turns)} turns"
    return f"{runs} loops of {turns:,.0f} turns {'each' if float(turns).is_integer() else 'on average'}"


def _won(row: pd.Series, gain: Gain | None, host_ns: float, *, is_bound: bool) -> Won:
    """What the replay says; without one at most the time of all turns but one."""
    if gain is None:
        return Won(round(host_ns * (1 - row["runs"] / row["turns"])), is_bound=True)
    return Won.of(gain, is_bound=is_bound or gain.is_bound)


def _is_of_optimizer(row: pd.Series) -> bool:
    return pd.notna(row["range"]) and host_names.phase(str(row["range"])) == "optimizer"


def _advice(row: pd.Series) -> str:
    waits = _WAITING if 2 * row["blocking_calls"] >= row["turns"] else ""
    if _is_of_optimizer(row):
        return f"{_OF_OPTIMIZER}{waits}"
    if row["of_sizes"] and str(row["loop"]).rpartition(": ")[2] == _COPY:
        return _OF_COPIES
    return f"{_OF_TENSORS if row['of_sizes'] else _OF_TURNS}{waits}"
