"""Benchmarks: hobnob beside other servers, in the same run, on the same model. See README.md."""
