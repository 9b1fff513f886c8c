"""What of a capture cannot be trusted."""
