"""How a column says that it points at no row."""

NONE = -1
"""Row position that means "there is none"."""
