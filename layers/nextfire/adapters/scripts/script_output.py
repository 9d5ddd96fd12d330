"""The output streams of a script."""

from __future__ import annotations

from nextfire.adapters.scripts.script_streams import Capture
from nextfire.domain.log import Stream
from nextfire.domain.masking import Masker
from nextfire.domain.ports.scripts import Supervisor


class MaskedOutput:
    """An output stream of a script. Masked before truncation: half a secret would not match."""

    def __init__(self, name: Stream, cap: int, masker: Masker, supervisor: Supervisor) -> None:
        self._name: Stream = name
        self._capture = Capture(cap)
        self._masked = masker.stream()
        self._supervisor = supervisor

    def feed(self, data: bytes) -> None:
        self._pass_on(self._masked.feed(data))

    def end(self) -> str:
        """Flush the masker. Returns the captured text."""
        self._pass_on(self._masked.rest())
        return self._capture.text()

    def last_lines(self) -> str:
        """See `Capture.last_lines`; after `end`."""
        return self._capture.last_lines()

    def _pass_on(self, data: bytes) -> None:
        if data:
            self._capture.feed(data)
            self._supervisor.output(self._name, data)
