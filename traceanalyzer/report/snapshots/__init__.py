"""How memory snapshots are reported: terminal, JSON, page."""
