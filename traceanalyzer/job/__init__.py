"""What is known of a job beside its traces: its run.json, model, hosts, and how its GPUs are joined."""
