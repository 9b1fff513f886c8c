"""How a column says that it points at no row; apart from `columns`, since decoding begins before pandas is loaded."""

NONE = -1
"""Row position that means "there is none"."""
