"""Benchmarks of what the README and the design promise. `make bench` lists them."""
