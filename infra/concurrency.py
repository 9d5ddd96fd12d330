"""How the functions of a stack share the Lambda concurrency of its account."""

from __future__ import annotations

from dataclasses import dataclass

MIN_UNRESERVED = 100
"""Lambda rejects a reservation that leaves less than this to the functions without one."""
WATCHERS_PER_GROUP = 3
"""One holds the lease, one stands by, and one ends while its successor starts."""
_API = 2
_PROJECTOR = 5
"""Without a limit, Lambda invokes it once for each shard of the stream of the table `runs`."""
_SMALL_PROJECTOR = 1  # its batches are short, and it may lag
_OTHERS = 2  # authorizer, auditor and audit log: short or rare
_MIN_POOL, _MAX_POOL = 2, 1000  # of an event source mapping
_API_SHARE = 10  # the API gets a tenth of a large account
_PROJECTOR_SHARE = 50


@dataclass(frozen=True)
class ConcurrencyShares:
    """`watcher`, `api` and `projector`: reserved concurrency, which is also their limit; None: the
    account is too small to reserve any. `pool`: maximum concurrency of each Lambda pool; its own
    setting may be lower.
    """

    watcher: int | None
    api: int | None
    projector: int | None
    pool: int


def share(account: int, *, groups: int, pools: int, auditors: int = 1) -> ConcurrencyShares:
    """Divide *account*, its concurrent executions, among the functions of a stack with *groups*
    watcher groups, *pools* pools on Lambda and *auditors* segments of the audit, so that executors,
    auditors and the projector never stop the watcher or the API.

    Raises:
        ValueError: It does not suffice.
    """
    watcher = WATCHERS_PER_GROUP * groups
    others = _OTHERS + auditors - 1
    api = max(_API, account // _API_SHARE)
    projector = max(_PROJECTOR, account // _PROJECTOR_SHARE)
    if account >= watcher + api + projector + MIN_UNRESERVED:
        left = account - watcher - api - projector - others
        return ConcurrencyShares(watcher, api, projector, _each(left, pools))
    left = account - watcher - _API - _SMALL_PROJECTOR - others
    needed = watcher + 1 + _MIN_POOL * pools + auditors - 1
    if needed > account:
        raise ValueError(
            f"accountConcurrency is {account}, and {groups} watcher groups with {pools} pools on "
            f"Lambda and {auditors} auditSegments need {needed} at least: request a higher quota "
            '"Concurrent executions" of Lambda (code L-B99A9384) and set accountConcurrency to it, '
            'or lower auditSegments, or use fewer groups, or pools with "executor": "worker"'
        )
    return ConcurrencyShares(None, None, None, _each(left, pools))


def _each(left: int, pools: int) -> int:
    return min(max(left // max(pools, 1), _MIN_POOL), _MAX_POOL)
