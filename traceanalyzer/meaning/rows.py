"""What rows say by numbers: no row, times that can be; apart from `columns`, as decoding begins before pandas."""

NONE = -1
"""Row position that means "there is none"."""

RANKS = 1_000_000
"""No job has as many: a larger number is no rank's and no world's size."""

LATEST_NS = 4 * 10**18
"""The year 2096. A clock's start of at most as much, added to a time, stays within int64."""

LONGEST_NS = 10**15
"""No event lasts longer than twelve days."""
