"""Authentication with a text in a header: an API key or a token."""

from __future__ import annotations

from collections.abc import Generator

import httpx2


class Bearer(httpx2.Auth):
    """Sends *text*, an API key or a token (*kind* ``key`` or ``token``), with each request."""

    def __init__(self, text: str, kind: str = "key") -> None:
        self._text = text
        self.kind = kind

    def auth_flow(
        self, request: httpx2.Request
    ) -> Generator[httpx2.Request, httpx2.Response, None]:
        request.headers["Authorization"] = f"Bearer {self._text}"
        yield request
