"""Replays: runs that send the request of an earlier run again."""

from __future__ import annotations

import json
import re
from typing import Self

from nextfire.dataclass import dataclass
from nextfire.domain.ids import RUN_ID

_TEXT = re.compile(rf"({RUN_ID.pattern}) ([1-9][0-9]{{0,8}}) ([0-9a-f]{{32}})")
_DIGEST = re.compile(r"[0-9a-f]{32}")


@dataclass(frozen=True, slots=True)
class Replay:
    """The request that a run repeats: of the attempt number `attempt` of the run `run_id` of the
    same job. `digest`: of the request, see `Request`.
    """

    run_id: str
    attempt: int
    digest: str

    @property
    def text(self) -> str:
        """As text, the inverse of `parse`."""
        return f"{self.run_id} {self.attempt} {self.digest}"

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the replay of *text*.

        Raises:
            ValueError: *text* is not a replay.
        """
        match = _TEXT.fullmatch(text)
        if match is None:
            raise ValueError("not a replay")
        *_, attempt, digest = match.groups()
        return cls(match[1], int(attempt), digest)


def sent_digest(call: str | None) -> str | None:
    """The digest of the request in *call*, the record of an attempt; None if it sent none."""
    try:
        record = json.loads(call or "{}")
    except ValueError:
        return None
    digest = record.get("digest") if isinstance(record, dict) else None
    return digest if isinstance(digest, str) and _DIGEST.fullmatch(digest) else None
