"""Checks that leases record each watcher that was lost, and no other."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from nextfire.domain.ports.control import Lease, Takeover


def check_takeover(wrong: Callable[[str], None], group: int, was: Any, to: Lease) -> None:
    """The lease *was* of *group*, if it is one, was replaced with *to*: the latest takeover is
    still in it, or the one that this write makes.
    """
    is_broken = not to.holder
    if not isinstance(was, Lease) or is_broken:
        return
    is_lost = was.holder != to.holder and not was.released and was.renewed_at is not None
    if not is_lost:
        if to.takeover != was.takeover:
            wrong(f"lease of group {group}: its takeover was {was.takeover}, now {to.takeover}")
    elif to.renewed_at is None or to.takeover != Takeover(was.renewed_at, to.renewed_at):  # type: ignore[arg-type]
        wrong(f"lease of group {group}: {was.holder} was lost, but it has {to.takeover}")
