"""Benchmarks: each measures a ratio against a peer or a physical floor in the same run."""
