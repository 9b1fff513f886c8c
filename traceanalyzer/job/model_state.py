"""What a model's training should hold on one GPU under each strategy: an estimate that names its assumptions.

State is parameters, gradients and the optimizer's, as the ZeRO paper counts them (Rajbhandari et al., 2020);
activations of a transformer's layer as Korthikanti et al. (2022) do, s·b·h·34 bytes in 16 bits, with fused attention.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from types import MappingProxyType
from typing import Any

from msgspec import Struct

from traceanalyzer.errors import UsageError


class Precision(Struct, frozen=True):
    """Bytes for each parameter: of itself, its gradient, a master copy, and of one of the optimizer's values."""

    parameter: int
    gradient: int
    master: int
    moment: int
    activation: int
    words: str


PRECISIONS: Mapping[str, Precision] = MappingProxyType(
    {
        "fp32": Precision(4, 4, 0, 4, 4, "all in fp32"),
        "autocast": Precision(4, 4, 0, 4, 2, "parameters, gradients and optimizer in fp32, activations in 16 bits"),
        "bf16": Precision(2, 2, 0, 2, 2, "all in 16 bits, without a master copy"),
        "mixed": Precision(2, 2, 4, 4, 2, "parameters and gradients in 16 bits, master copy and optimizer in fp32"),
    }
)

OPTIMIZERS: Mapping[str, int] = MappingProxyType({"adamw": 2, "adam": 2, "momentum": 1, "lion": 1, "sgd": 0})
"""Values that each keeps for a parameter."""

SHARDED: Mapping[str, tuple[bool, bool, bool]] = MappingProxyType(
    {
        "ddp": (False, False, False),
        "zero1": (False, False, True),
        "zero2": (False, True, True),
        "zero3": (True, True, True),
        "offload": (True, True, True),
    }
)
"""Strategy → whether data-parallel ranks share parameters, gradients, optimizer. `zero3` is FSDP with full sharding;
`offload` is that with parameters, gradients and optimizer on the host. In order of what they cost in communication."""

_LAYER_BYTES, _LAYER_OWN_BYTES, _LOGIT_BYTES = 34, 10, 8


@dataclass(frozen=True, slots=True)
class Model:
    """What is known of a model and its training; `None` where it is not.

    Attributes:
        params: parameters of the whole model.
        layers: transformer layers.
        d_model: their width.
        vocab: entries of the vocabulary.
        seq: tokens a sample.
        batch: samples of one micro-step on one data-parallel rank.
        precision: one of PRECISIONS.
        optimizer: one of OPTIMIZERS.
        dp: data-parallel ranks among which state is shared (of hybrid sharding those of one shard group); where not
            known, all ranks of the job that tensor and pipeline parallelism leave.
        tp: ranks that share each layer.
        pp: stages of a pipeline.
        microbatches: of a pipeline.
        strategy: one of SHARDED.
        checkpoint: whether layers are recomputed in the backward pass.
        gpu: memory of a GPU, bytes.
    """

    params: int
    layers: int | None = None
    d_model: int | None = None
    vocab: int | None = None
    seq: int | None = None
    batch: int | None = None
    precision: str = "autocast"
    optimizer: str = "adamw"
    dp: int | None = None
    tp: int = 1
    pp: int = 1
    microbatches: int | None = None
    strategy: str | None = None
    checkpoint: bool = False
    gpu: int | None = None


@dataclass(frozen=True, slots=True)
class Needs:
    """Bytes that one GPU holds; `None` where the model's shape is not known."""

    parameter_bytes: int
    gradient_bytes: int
    optimizer_bytes: int
    buffer_bytes: int | None
    activation_bytes: int | None

    @property
    def state_bytes(self) -> int:
        """Parameters, gradients and the optimizer's."""
        return self.parameter_bytes + self.gradient_bytes + self.optimizer_bytes

    @property
    def total_bytes(self) -> int | None:
        """All of it."""
        if self.buffer_bytes is None or self.activation_bytes is None:
            return None
        return self.state_bytes + self.buffer_bytes + self.activation_bytes


def needs(model: Model) -> Needs:
    """What one GPU holds at the end of the forward pass, when activations and gradients meet."""
    precision, shards = PRECISIONS[model.precision], SHARDED[model.strategy or "ddp"]
    own = model.params / (model.tp * model.pp)
    by_parameter, by_gradient, by_optimizer = (own / (model.dp or 1 if shared else 1) for shared in shards)
    values = precision.master + OPTIMIZERS[model.optimizer] * precision.moment
    on_gpu = 0 if model.strategy == "offload" else 1
    return Needs(
        round(on_gpu * precision.parameter * by_parameter),
        round(on_gpu * precision.gradient * by_gradient),
        round(on_gpu * values * by_optimizer),
        _buffers(model, own),
        _activations(model),
    )


def _buffers(model: Model, own: float) -> int | None:
    """DDP's buckets, as large as the gradients; two gathered layers and one layer's gradients of sharded parameters."""
    precision = PRECISIONS[model.precision]
    if (model.dp or 1) == 1:
        return 0
    if model.strategy in ("zero3", "offload"):
        if model.layers is None:
            return None
        layer = own / max(model.layers / model.pp, 1)
        return round(layer * (2 * min(precision.parameter, precision.activation) + precision.gradient))
    return round(precision.gradient * own) if model.strategy in (None, "ddp", "zero1") else 0


def _activations(model: Model) -> int | None:
    """Of all layers of a stage and of the logits, for the micro-batches that a stage holds at once."""
    if not (model.layers and model.d_model and model.seq and model.batch):
        return None
    tokens, width = model.seq * model.batch, model.d_model
    scale = PRECISIONS[model.precision].activation / 2
    layers = model.layers / model.pp
    layer = scale * tokens * width * (_LAYER_OWN_BYTES + (_LAYER_BYTES - _LAYER_OWN_BYTES) / model.tp)
    held = min(model.pp, model.microbatches or model.pp)
    kept = scale * 2 * tokens * width * layers * held + layer if model.checkpoint else layer * layers * held
    # Logits as computed, their softmax and its gradient in fp32; on the last stage of a pipeline, which holds one.
    logits = 0.0 if model.vocab is None else tokens * model.vocab * (2 * scale + _LOGIT_BYTES) / model.tp
    last = (2 * scale * tokens * width * layers + layer if model.checkpoint else layer * layers) + logits
    return round(max(kept, last) if model.pp > 1 else kept + logits)


def choices(model: Model) -> list[tuple[Model, Needs]]:
    """The model under every strategy, without and with activation checkpointing; then with half and one sample.

    Before the state goes to the host, layers are shared by two, four and eight ranks, and cut into as many stages,
    where the data-parallel ranks suffice for it: these are then fewer.
    """
    made = []
    sizes = (None,) if model.batch is None else (model.batch, max(model.batch // 2, 1), 1)
    for batch in dict.fromkeys(sizes):
        for one in _strategies(replace(model, batch=batch)):
            made += [(each, needs(each)) for each in (replace(one, checkpoint=kept) for kept in (False, True))]
    return made


def _strategies(model: Model) -> list[Model]:
    dp = model.dp or 1
    sharing = [replace(model, strategy=name) for name in SHARDED if dp > 1 or name == "ddp"]
    apart = [] if dp == 1 else [sharing.pop()]  # offload stands last
    ways = [ways for ways in WAYS if dp % ways == 0 and ways <= dp]
    layers = [replace(model, strategy="ddp", tp=model.tp * ways, dp=dp // ways) for ways in ways]
    stages = [
        replace(model, strategy="ddp", pp=model.pp * ways, dp=dp // ways)
        for ways in ways
        if model.layers is None or model.layers >= model.pp * ways
    ]
    return [*sharing, *layers, *stages, *(apart or [replace(model, strategy="offload")])]


WAYS = (2, 4, 8)
"""Ranks that share a layer, or stages, in the choices; eight are the GPUs of most hosts."""


def assumptions(model: Model) -> str:
    """What an estimate of the model supposes, as a sentence."""
    parts = [PRECISIONS[model.precision].words, f"{model.optimizer} ({OPTIMIZERS[model.optimizer]} values a parameter)"]
    if model.tp * model.pp > 1:
        parts.append(f"parameters spread evenly over {model.tp} × {model.pp} ranks of tensor and pipeline parallelism")
    if model.layers is None:
        parts.append("activations and gathered layers unknown without layers, d_model, seq and batch")
    else:
        parts.append("34 bytes an activation and layer in 16 bits, attention fused, layers of equal size")
    if (model.dp or 1) > 1:
        parts.append(
            "rows with more tp or pp take as many GPUs, with fewer data-parallel ranks and so a smaller global batch "
            "or more micro-steps; without sequence parallelism; a first stage holds a micro-batch for each stage"
        )
    parts.append("DDP with buckets of its own beside the gradients; no fragmentation, no memory of libraries")
    return "; ".join(parts) + "."


_CHOICES: Mapping[str, Mapping[str, object]] = {"precision": PRECISIONS, "optimizer": OPTIMIZERS, "strategy": SHARDED}

_NUMBER = re.compile(r"(\d+(?:\.\d+)?(?:e\d+)?)([kKmMgGbBtT]?)")

_UNITS = {"": 1, "k": 10**3, "m": 10**6, "g": 10**9, "b": 10**9, "t": 10**12}


def entries(text: str) -> dict[str, Any]:
    """`params=7e9,layers=32,d_model=4096,seq=4096,batch=1,dp=8` as values by the names of a Model's attributes.

    Raises:
        UsageError: an entry is no name and value, or is not understood.
    """
    names = [one.name for one in fields(Model)]
    found: dict[str, Any] = {}
    for entry in filter(None, (part.strip() for part in text.split(","))):
        name, _, value = entry.partition("=")
        if name not in names or not value:
            raise UsageError(f"--model {entry!r}: write name=value with one of {', '.join(names)}")
        found[name] = _value(name, value.strip())
    return found


def completed(known: Model | None, given: Mapping[str, Any]) -> Model | None:
    """What is known of a model, with what the user tells over it; `None` where neither says anything.

    Raises:
        UsageError: nobody tells the number of parameters.
    """
    if not given or known is not None:
        return known and replace(known, **given)
    if "params" not in given:
        raise UsageError("--model: the number of parameters is missing, such as params=7e9")
    return Model(**given)


def _value(name: str, text: str) -> object:
    if name in _CHOICES:
        if text not in _CHOICES[name]:
            raise UsageError(f"--model {name}={text}: one of {', '.join(_CHOICES[name])}")
        return text
    if name == "checkpoint":
        return text.lower() in ("1", "true", "yes", "on")
    number = _NUMBER.fullmatch(text)
    if number is None or not (size := round(float(number[1]) * _UNITS[number[2].lower()])):
        raise UsageError(f"--model {name}={text}: a number above 0, such as 7e9, 80G or 4096")
    return size
