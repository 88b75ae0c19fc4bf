"""Settling: write-ahead objects become Parquet, in both tables and in the index, by jobs that can be repeated from any state."""
