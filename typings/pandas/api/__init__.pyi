from pandas.api import extensions as extensions
from pandas.api import types as types
