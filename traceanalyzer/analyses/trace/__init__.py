"""What a capture holds beside operations: who recorded it, counters, ranges."""
