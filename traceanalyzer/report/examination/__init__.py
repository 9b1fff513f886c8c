"""How the doctor's examination is written: terminal, JSON, page."""
