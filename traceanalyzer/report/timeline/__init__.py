"""The data of a page's timeline."""
