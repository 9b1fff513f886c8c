"""Device memory."""
