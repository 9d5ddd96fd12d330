"""Every port in memory. Each passes the contract suite of its adapter (tests/integration).

Attributes and methods that the port does not have simulate faults: `freeze` (stale reads),
`refuses` (partial failures), `spoil` (undecodable items). `Faults` makes whole calls fail and kills
the process between two calls.
"""
