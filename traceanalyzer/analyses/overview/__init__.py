"""What all other analyses come to, in few rows: what a report says first."""
