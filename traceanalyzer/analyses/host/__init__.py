"""What the host did: launches, idle causes, synchronising calls."""
