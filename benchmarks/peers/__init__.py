"""Other schedulers on one machine, for comparison: procrastinate and graphile-worker.

They are installed into `.nextfire/peers` when a benchmark first needs them, and run on a PostgreSQL
server that the benchmark starts.
"""
