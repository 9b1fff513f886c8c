from pandas.api import types as types
