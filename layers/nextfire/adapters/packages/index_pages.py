"""Rewrites file URLs in pages of a package index (PEP 503 as HTML, PEP 691 as JSON)."""

from __future__ import annotations

import json
from collections.abc import Callable
from html import escape
from html.parser import HTMLParser
from urllib.parse import urljoin

Move = Callable[[str], str]
"""Maps the absolute URL of a file, without its fragment, to the URL to use instead."""


def rewrite_links(page: bytes, kind: str, at: str, move: Move) -> bytes:
    """Replace the file URLs in *page*.

    Args:
        page: The body.
        kind: Its content type.
        at: The URL from which it was fetched.
        move: Maps the URL of each file.

    Raises:
        ValueError: The page is malformed.
    """
    if "json" in kind:
        return _json(page, at, move)
    links = _Links(at, move)
    links.feed(page.decode("utf-8", "replace"))
    links.close()
    return ("<!DOCTYPE html>\n" + "".join(links.anchors)).encode()


def _json(page: bytes, at: str, move: Move) -> bytes:
    try:
        document = json.loads(page)
        for file in document["files"]:
            file["url"] = _moved(file["url"], at, move)
            file.pop("provenance", None)
    except (LookupError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError("not a page of a package index") from error
    return json.dumps(document).encode()


def _moved(link: str, at: str, move: Move) -> str:
    url, mark, fragment = urljoin(at, link).partition("#")
    return move(url) + mark + fragment


class _Links(HTMLParser):
    """Collects and rewrites the anchors of a page. Installers need nothing else."""

    def __init__(self, at: str, move: Move) -> None:
        super().__init__(convert_charrefs=True)
        self._at = at
        self._move = move
        self._open = False
        self.anchors: list[str] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        values = dict(attrs)
        if tag == "base" and (base := values.get("href")):
            self._at = urljoin(self._at, base)
        if tag == "a" and (href := values.get("href")):
            values["href"] = _moved(href, self._at, self._move)
            text = " ".join(f'{name}="{escape(value or "")}"' for name, value in values.items())
            self.anchors.append(f"<a {text}>")
            self._open = True

    def handle_data(self, data: str) -> None:
        if self._open:
            self.anchors.append(escape(data))

    def handle_endtag(self, tag: str) -> None:
        if tag == "a" and self._open:
            self.anchors.append("</a>\n")
            self._open = False
