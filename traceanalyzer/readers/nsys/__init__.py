"""Nsight Systems exports: a source of tables (database or Parquet folder) → the tables of each rank."""
