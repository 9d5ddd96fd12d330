"""The tick: read due entries, send their runs, store successors, delete the entries, in that order.

- `tick`: the steps of a tick
- `reader`: reads due entries from the buckets of each shard
- `holding`: entries held in memory until they are due, and the turns of tenants
- `deciding`: decides what to do with each entry
- `gates`: admission by queue capacity, overlap policy and tenant quota
- `actions`: carries out the decisions
- `waiting`: postpones and parks entries in the table
- `parked`: finds parked entries
- `quarantine`: sets undecodable entries aside
- `report`: what a step did
"""
