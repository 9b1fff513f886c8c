"""What a report says: quantities, names, verdict."""
