# Tables and rows whose columns the type checker knows; at run time they are pandas' tables and Python's dicts.
#
# Of a `Frame[HeadlineColumn]`, `table["idle_pc"]` is a type error. What is chosen, sorted or grouped of it keeps its
# columns; what `assign`, `merge` or `agg` makes has others and is a plain table. Code that takes any table says so by
# `pd.DataFrame`, any row by `Mapping[str, Any]`.

from collections.abc import Iterator
from typing import Any, Generic, Literal, Self, TypeAlias, overload

import numpy as np
import pandas as pd
from typing_extensions import TypeVar

N = TypeVar("N", default=Any)
# The names of a table's columns: a `Literal` of `names.py`.

F = TypeVar("F")

Mask: TypeAlias = slice | np.ndarray | pd.Series | pd.Index
Label: TypeAlias = int | float | np.generic

class Row(dict[str, Any], Generic[N]):
    def __getitem__(self, name: N) -> Any: ...  # type: ignore[override]  # its own columns only
    def get(self, name: N, default: Any = None) -> Any: ...  # type: ignore[override]  # the same

class Groups(pd.api.typing.DataFrameGroupBy, Generic[N]):
    @overload
    def __getitem__(self, name: list[N]) -> pd.api.typing.DataFrameGroupBy: ...  # type: ignore[overload-overlap]  # N is Any
    @overload
    def __getitem__(self, name: N) -> pd.api.typing.SeriesGroupBy: ...
    def __iter__(self) -> Iterator[tuple[Any, Frame[N]]]: ...

class Places(Generic[F, N]):
    @overload
    def __getitem__(self, place: tuple[Mask | list[Any], N]) -> pd.Series: ...
    @overload
    def __getitem__(self, place: tuple[Mask | list[Any], list[N]]) -> F: ...
    @overload
    def __getitem__(self, place: tuple[Label, N]) -> Any: ...
    @overload
    def __getitem__(self, place: Mask | list[Any]) -> F: ...
    @overload
    def __getitem__(self, place: Label) -> Any: ...
    def __setitem__(self, place: Any, value: Any) -> None: ...

class Frame(pd.DataFrame, Generic[N]):
    @overload  # type: ignore[override]  # its own columns only
    def __getitem__(self, name: Mask) -> Self: ...  # type: ignore[overload-overlap]  # where N is Any
    @overload
    def __getitem__(self, name: list[N]) -> Self: ...  # type: ignore[overload-overlap]  # the same
    @overload
    def __getitem__(self, name: N) -> pd.Series: ...
    @property
    def loc(self) -> Places[Self, N]: ...  # type: ignore[override]  # the same
    def set_index(self, keys: N | list[N], **options: Any) -> Self: ...
    def sort_values(self, by: N | list[N], **options: Any) -> Self: ...
    def drop_duplicates(self, subset: N | list[N] | None = None, **options: Any) -> Self: ...
    def dropna(self, *, subset: N | list[N] | None = None, **options: Any) -> Self: ...
    @overload  # type: ignore[override]  # the same
    def groupby(self, by: N | list[N] | pd.Series, *, as_index: Literal[False], **options: Any) -> Any: ...
    @overload
    def groupby(self, by: N | list[N] | pd.Series, **options: Any) -> Groups[N]: ...
    @overload  # type: ignore[override]  # the same
    def to_dict(self, orient: Literal["records"], **options: Any) -> list[Row[N]]: ...
    @overload
    def to_dict(self, orient: Any = "dict", **options: Any) -> Any: ...
