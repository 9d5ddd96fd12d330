"""Kinds of targets, a folder each: its document in the job, and its runner.

Claim, lease, heartbeat, retry, cancel and records are the same for all kinds; see
`nextfire.domain.ports.targets`.
"""
