"""The tables of the studies: what each says of a run, or of several, is one file."""
