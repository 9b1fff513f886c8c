"""What rocprofv3 records of one process, from its JSON file or its database, as ranks."""
