"""Who sends how much to whom in all-to-alls, and what their unevenness costs."""
