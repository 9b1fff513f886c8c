"""Jobs that can be simulated with faults, by how they are laid out and what they do: a file a kind of job."""
