"""The tick: read what is due, send it, store its successor, delete it. In that order, always.

- `tick`: the steps, on one screen
- `reader`: what is due, read from the buckets of each shard
- `holding`: what is held in memory until its instant, and whose turn it is
- `deciding`: what becomes of each entry
- `gates`: who has to wait: for room in a queue, for its turn, for its tenant's quota
- `actions`: what is done for an entry
- `waiting`: what has to wait, in the table
- `quarantine`: what does not decode
- `report`: what a step did
"""
