"""Unfused operators: chains that each pass over the same data, where one kernel would pass over it once.

Attention, norms, the optimizer or chains of element-wise operators run as many kernels, each of which reads and
writes the whole tensor.

**Fix.** `torch.nn.functional.scaled_dot_product_attention`, `torch.nn.functional.rms_norm`, `AdamW(..., fused=True)`;
`torch.compile` fuses the rest. `channels_last` for convolutions removes layout conversions.
"""

import re
from collections.abc import Iterator

import pandas as pd

from traceanalyzer.analyses.kernels import SCORES, Kernels
from traceanalyzer.analyses.operators.efficiency import Efficiency
from traceanalyzer.analyses.operators.operators import OperatorKernels, Operators
from traceanalyzer.analyses.phases import without_numbers
from traceanalyzer.analyses.replay.changes import Change
from traceanalyzer.findings.finding import Finding
from traceanalyzer.findings.run import Run
from traceanalyzer.kinds import Call
from traceanalyzer.meaning.columns import time_text
from traceanalyzer.meaning.vocabulary import named

PLACE = "Compute", 3

ATTENTION, NORMS, OPTIMIZER, CHAINS = "attention", "norms", "optimizer", "element-wise kernels"

_FAMILIES = ("element-wise", "norm", "softmax")
"""Families of operators that read and write their data and compute little."""

_OF_LISTS = re.compile(r"aten::_foreach_(?!copy|zero|norm)")
"""Optimizers' operators on lists of parameters, one pass over all of them each."""

_LAYOUT = re.compile("nchw_?to_?nhwc|nhwc_?to_?nchw", re.IGNORECASE)

_MATH = "aten::_scaled_dot_product_attention_math"

_FIXES = {
    ATTENTION: 'torch.nn.functional.scaled_dot_product_attention (Hugging Face: attn_implementation="sdpa").',
    NORMS: "torch.nn.functional.rms_norm or layer_norm, or torch.compile around the block.",
    OPTIMIZER: "An optimizer with fused=True, such as torch.optim.AdamW(…, fused=True): one kernel updates all.",
    CHAINS: "torch.compile the repeated block: it fuses what lies between matrix products.",
    _MATH: "scaled_dot_product_attention falls back to its unfused kernels: give 16-bit inputs and is_causal=True "
    "instead of a mask; torch.nn.attention.sdpa_kernel says what a fused one refuses.",
}


_LOSS = "torch.compile the output head with the loss, or a fused linear cross-entropy kernel."


def unfused(
    run: Run, efficiency: Efficiency, operators: Operators, operator_kernels: OperatorKernels, kernels: Kernels
) -> Iterator[Finding]:
    """Attention, norms, optimizers and element-wise chains run operator by operator; layouts are converted.

    Operators of one autograd pass whose first input has the same shape are a chain: fused, the one that takes longest
    stays. What runs between attention's two products goes altogether. The change is the others gone, of chains from
    recorded shapes. Layout conversions are recognized by their kernels' names.
    """
    held = operator_kernels.table
    yield from _attention(run, operators, held)
    is_scores = (held["category"] == SCORES) & held["operator"].astype("str").str.contains("softmax")
    chains = _chains(efficiency.table, operators.table, {*held.loc[is_scores, "operator"]})
    for kind, own in chains.groupby("kind", sort=False):
        by_operator = own.groupby("operator")[["gpu_ns", "spared_ns"]].sum().sort_values("gpu_ns", ascending=False)
        changes = run.shorter_operators(by_operator["spared_ns"])
        if not changes:
            continue
        names = [change.name for change in changes]
        longest = own[own["operator"].isin(names)].groupby("shape")["spared_ns"].sum().idxmax()
        chain = own[own["shape"] == longest].groupby("operator")["gpu_ns"].sum()
        launched = held[held["operator"].isin(names)]
        placed = launched["gpu_ns"].groupby(without_numbers(launched["path"])).sum()
        where = f", mostly in {str(placed.idxmax()).rpartition('/')[2].removesuffix('_#')}" if len(placed) else ""
        pass_ = "reads and writes" if len(chain) == 1 else "each read and write"
        over = f"tensors of {list(longest)}" if longest else "all parameters"
        spared_ns = own.groupby("rank")["spared_ns"].sum().max() / run.recorded_each
        yield Finding(
            headline=f"Unfused {kind}: {time_text(spared_ns)}{run.each} in passes that fusion avoids.",
            why=f"{named(chain.nlargest(3).index.tolist())} {pass_} {over}{where}.",
            fix=_LOSS if kind == CHAINS and "log_softmax" in chain.index[0] else _FIXES[kind],
            changes=changes,
            evidence=tuple({"operator": name, **row} for name, row in by_operator.head().to_dict("index").items()),
            table="operator_shapes",
            half_of="these passes",
        )
    turned = kernels.table[[bool(_LAYOUT.search(str(name))) for name in kernels.table["name"]]]
    if run.is_worth(turned["total_ns"].sum() / run.recorded):
        found = sorted({match[0] for name in turned["name"] if (match := _LAYOUT.search(str(name)))})
        yield Finding(
            headline=f"Layout conversions: {time_text(turned['total_ns'].sum() / run.recorded)}{run.each} of GPU time.",
            why="cuDNN's convolutions on tensor cores want NHWC, and turn NCHW tensors before and after each call.",
            fix="model.to(memory_format=torch.channels_last), and the inputs too.",
            changes=tuple(Change("kernel", 0.0, name=name) for name in found),
            table="kernels",
        )


def _attention(run: Run, operators: Operators, held: pd.DataFrame) -> Iterator[Finding]:
    """What passes over attention's scores between its two products."""
    own = held[held["category"] == SCORES]
    by_operator = own.groupby("operator", observed=True)["gpu_ns"].sum().sort_values(ascending=False)
    changes = run.shorter_operators(by_operator)
    if not changes:
        return
    is_math = bool((operators.table["operator"] == _MATH).any())
    time = time_text(own.groupby("rank")["gpu_ns"].sum().max() / run.recorded_each)
    yield Finding(
        headline=f"Unfused attention: {time}{run.each} in passes over its scores.",
        why=f"{named(by_operator.index[:3].tolist())} work on the scores of all pairs of tokens in memory.",
        fix=_FIXES[_MATH if is_math else ATTENTION],
        changes=changes,
        evidence=tuple({"operator": name, "gpu_ns": int(ns)} for name, ns in by_operator.head().items()),
        table="operator_kernels",
    )


def _chains(efficiency: pd.DataFrame, operators: pd.DataFrame, of_scores: set[str]) -> pd.DataFrame:
    """Operators of chains by rank, pass and shape: `kind`, `gpu_ns` and `spared_ns`, what a fused one leaves out.

    Shapes that the softmax operators `of_scores` work on are attention's.
    """
    known = efficiency[efficiency["shapes"].notna()]
    shapes = {text: Call.parse(str(text)) for text in known["shapes"].unique()}
    own = known[known["family"].isin(_FAMILIES)]
    own = own.assign(shape=[shapes[text].first for text in own["shapes"]]).dropna(subset="shape")
    own = own[~own["shape"].isin(own.loc[own["operator"].isin(of_scores), "shape"])]
    is_fused = operators["operator"].astype("str").str.startswith("aten::_fused_adam").any()
    lists = operators[[not is_fused and bool(_OF_LISTS.match(str(name))) for name in operators["operator"]]]
    lists = lists.assign(shape=[()] * len(lists), gpu_ns=lists["gpu_own_ns"])
    keys = ["rank", "autograd", "shape", "operator"]
    table = pd.concat([part[[*keys, "gpu_ns"]].astype({"autograd": "object"}) for part in (own, lists)])
    table = table.assign(gpu_ns=table["gpu_ns"].astype("float64")).groupby(keys, dropna=False, as_index=False).sum()
    kind_of = {shape: _kind(shape, {*part["operator"]}, table) for shape, part in table.groupby("shape")}
    table["kind"] = [kind_of[shape] for shape in table["shape"]]
    longest = table.groupby(keys[:3], dropna=False)["gpu_ns"].transform("idxmax") == table.index
    return table.assign(spared_ns=table["gpu_ns"].where(~longest, 0.0))


def _kind(shape: tuple[int, ...], names: set[str], table: pd.DataFrame) -> str:
    if not shape or any("addcdiv" in name for name in names):
        return OPTIMIZER
    roots = {*table.loc[table["operator"].isin(["aten::rsqrt", "aten::sqrt"]), "shape"]}
    return NORMS if "aten::mean" in names and (*shape[:-1], 1) in roots else CHAINS
