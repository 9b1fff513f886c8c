from typing import Any

import numpy as np
from pandas import DataFrame, Index

def create_dataframe_from_blocks(blocks: list[tuple[Any, np.ndarray]], index: Index, columns: Index) -> DataFrame: ...
