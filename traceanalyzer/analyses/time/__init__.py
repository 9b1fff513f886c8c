"""How a rank's time splits: intervals, breakdown, overlap, steps."""
