from pandas import ColumnGroups as SeriesGroupBy
from pandas import TableGroups as DataFrameGroupBy

__all__ = ["DataFrameGroupBy", "SeriesGroupBy"]
