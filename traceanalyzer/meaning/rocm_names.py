"""What a person calls the kernels of AMD's libraries: Tensile, MIOpen, Composable Kernel, AITER, rocPRIM, HIP's own."""

import re
from collections.abc import Callable

Rule = tuple[re.Pattern[str], Callable[[re.Match[str], str], str]]

_ELEMENTS = {"H": "fp16", "B": "bf16", "S": "f32", "D": "f64", "F8": "fp8", "B8": "bf8", "I8": "i8"}

_TENSILE = re.compile(
    r"^Cijk_A(?P<a>[a-z]{3})_B(?P<b>[a-z]{3})_(?P<types>[A-Z]\d?)[A-Z0-9]*_.*?MT(?P<tile>\d+x\d+)(?:x\d+)?_"
)
# The summed index first means a transposed A and a plain B: BLAS's letters.
_LAYOUT = {("lik", "ljk"): "TN", ("lik", "jlk"): "TT", ("ilk", "ljk"): "NN", ("ilk", "jlk"): "NT"}

_PASSES = {"fwd": "conv forward", "bwd": "conv data grad", "wrw": "conv weight grad"}

_CK_PLAIN = re.compile(r"\bck::(?:\w+::)*(?:\(anonymous namespace\)::)?kernel_(?P<what>\w+)")


def runtime_activity(kernel: str) -> str | None:
    """`memset` or `memcpy` for the kernels with which HIP itself fills and copies memory; `None` for others."""
    if not kernel.startswith("__amd_rocclr_"):
        return None
    return "memset" if "fill" in kernel else "memcpy" if "copy" in kernel else None


def _tensile(match: re.Match[str], _: str) -> str:
    layout = _LAYOUT.get((match["a"], match["b"]), "")
    dtype = _ELEMENTS.get(match["types"]) or _ELEMENTS.get(match["types"][0], "")
    return " ".join(filter(None, ["Tensile gemm", layout, match["tile"].replace("x", "×"), dtype]))


def _igemm(match: re.Match[str], _: str) -> str:
    return f"MIOpen {_PASSES[match['pass']]} {match['tile'].replace('x', '×')} {match['dtype']}"


def _ck(match: re.Match[str], _: str) -> str:
    return f"ck · {match['what']}"


def _ck_tile(match: re.Match[str], _: str) -> str:
    return f"ck_tile · {match['what'].removesuffix('Kernel')}"


def _aiter(match: re.Match[str], _: str) -> str:
    return f"aiter · {match['what'].removesuffix('_kernel')}"


RULES: tuple[Rule, ...] = (
    (_TENSILE, _tensile),
    (
        re.compile(r"^igemm_(?P<pass>fwd|bwd|wrw)_\w+?_(?P<dtype>bf16|fp16|fp32|int8)_.*?_bt(?P<tile>\d+x\d+)"),
        _igemm,
    ),
    # Mangled: the length of a name stands before it, I before its template arguments, E behind the scope.
    (re.compile(r"^_ZN2ck.*?\d+kernel_(?P<what>[a-z]\w*?)(?=I[A-Z]|E)"), _ck),
    (_CK_PLAIN, _ck),
    (re.compile(r"^_ZN7ck_tile\d+kentry.*?NS_\d+(?P<what>[A-Za-z]\w*?)(?=I[A-Z]|E)"), _ck_tile),
    (re.compile(r"\bck_tile::kentry<.*?ck_tile::(?P<what>\w+)"), _ck_tile),
    (re.compile(r"^_ZN5aiter\d+(?P<what>[A-Za-z]\w*?)(?=I[A-Z]|E)"), _aiter),
    (re.compile(r"\baiter::(?:\w+::)*(?P<what>[A-Za-z]\w*)"), _aiter),
    (
        re.compile(r"\brocprim::(?:\w+::)*(?P<what>\w+?)(?:_kernel)?<"),
        lambda match, _: f"rocPRIM · {match['what']}",
    ),
    (re.compile(r"^__amd_rocclr_fill"), lambda *_: "HIP fill"),
    (re.compile(r"^__amd_rocclr_copy"), lambda *_: "HIP copy"),
    (re.compile(r"^SubTensorOp"), lambda *_: "MIOpen tensor op"),
    (re.compile(r"^(?P<what>MIOpen\w+|miopen\w+)"), lambda match, _: f"MIOpen · {match['what'][6:].lstrip('_')}"),
)
"""The first rule whose pattern is found in the name gives the short name."""
