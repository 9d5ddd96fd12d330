"""The cost of runs: prices, measured usage, and what other schedulers charge."""
