"""What the capture cannot tell, and how to record again: said before any advice."""
