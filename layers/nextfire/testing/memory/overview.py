"""The segments of the overview in memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import chain

from nextfire.domain.overview import MAX_STEPS, Head, Segment, Step


class MemorySegmentStore:
    """`SegmentStore`."""

    def __init__(self) -> None:
        self.segments: dict[tuple[str, str, int, str], Segment] = {}
        self.heads: dict[str, Head] = {}
        self.snapshots: dict[tuple[str, str], Sequence[Step]] = {}

    def add(self, tenant: str, segments: Sequence[Segment]) -> int:
        for each in segments:
            self.segments[tenant, each.log, each.window_ms, each.id] = each
        return 20 * sum(len(each.steps) for each in segments)

    def read(
        self, tenant: str, log: str, first_ms: int, last_ms: int, *, newest_first: bool = False
    ) -> Iterator[Segment]:
        found = sorted(
            (key for key in self.segments if key[:2] == (tenant, log)), reverse=newest_first
        )
        for key in found:
            if first_ms <= key[2] <= last_ms:
                yield self.segments[key]

    def head(self, tenant: str) -> Head | None:
        return self.heads.get(tenant)

    def snapshot(self, tenant: str, head: Head) -> Sequence[Step] | None:
        return self.snapshots.get((tenant, head.snapshot))

    def replace_head(self, tenant: str, was: Head | None, to: Head, steps: Sequence[Step]) -> bool:
        if self.heads.get(tenant) != was:
            return False
        self.snapshots[tenant, to.snapshot] = [*steps]
        self.heads[tenant] = replace(to, parts=-(-len(steps) // MAX_STEPS))
        if was is not None:
            self.snapshots.pop((tenant, was.snapshot), None)
        return True

    def steps(self, tenant: str) -> set[Step]:
        """All steps of *tenant* in the segments."""
        found = (each.steps for key, each in self.segments.items() if key[0] == tenant)
        return {*chain.from_iterable(found)}
