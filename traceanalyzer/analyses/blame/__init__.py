"""Who is late, in which steps, by what: what each rank's steps need, and the episodes in which some need more."""
