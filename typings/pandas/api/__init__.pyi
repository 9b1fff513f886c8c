from pandas.api import extensions as extensions
from pandas.api import internals as internals
from pandas.api import types as types
from pandas.api import typing as typing
