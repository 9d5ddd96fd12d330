"""A package index on the loopback interface for tests. It serves generated wheels and source
archives (PEP 503).
"""

from __future__ import annotations

import base64
import hashlib
import io
import tarfile
import threading
import zipfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any


def wheel(
    name: str, version: str = "1.0", *, module: str = "VALUE = 42\n", requires: Sequence[str] = ()
) -> tuple[str, bytes]:
    """Build a wheel with one module. Returns its file name and content."""
    stem = name.replace("-", "_")
    about = f"{stem}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{stem}/__init__.py": module,
        f"{about}/METADATA": metadata + "".join(f"Requires-Dist: {each}\n" for each in requires),
        f"{about}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    files[f"{about}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{about}/RECORD"])
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        for path, content in files.items():
            archive.writestr(zipfile.ZipInfo(path, (2026, 1, 1, 0, 0, 0)), content)
    return f"{stem}-{version}-py3-none-any.whl", data.getvalue()


def sdist(name: str, backend: str, version: str = "1.0") -> tuple[str, bytes]:
    """Build a source archive whose build backend is the Python module *backend*. Returns its file
    name and content.
    """
    stem = f"{name.replace('-', '_')}-{version}"
    system = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    data = io.BytesIO()
    with tarfile.open(fileobj=data, mode="w:gz") as archive:
        for path, text in (
            ("pyproject.toml", system),
            ("backend.py", backend),
            ("PKG-INFO", f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"),
        ):
            entry = tarfile.TarInfo(f"{stem}/{path}")
            entry.size = len(text.encode())
            archive.addfile(entry, io.BytesIO(text.encode()))
    return f"{stem}.tar.gz", data.getvalue()


def sha256(file: tuple[str, bytes]) -> str:
    return hashlib.sha256(file[1]).hexdigest()


@dataclass
class Index:
    """What is served. `credentials`: USER:PASSWORD that requests must have; `link`: how a page
    links the file of that path; `before`: called before a request is answered.
    """

    port: int = 0
    files: dict[str, dict[str, bytes]] = field(default_factory=dict)
    credentials: str | None = None
    status: int | None = None
    link: Callable[[str], str] = lambda path: path
    redirect: Callable[[str], str | None] = lambda _: None
    before: Callable[[str], object] = lambda _: None
    asked: list[str] = field(default_factory=list)

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}/private/simple"

    def add(self, name: str, *files: tuple[str, bytes]) -> None:
        self.files.setdefault(name, {}).update(files)

    def answer(self, path: str, authorization: str | None) -> tuple[int, bytes]:
        if not path.startswith("/private/"):
            return 404, b""  # not for this index: the port may have been reused
        self.asked.append(path)
        self.before(path)
        wanted = (
            self.credentials and "Basic " + base64.b64encode(self.credentials.encode()).decode()
        )
        if wanted and authorization != wanted:
            return 401, b"who are you?"
        if self.status is not None:
            return self.status, b"not today"
        match path.strip("/").split("/"):
            case ["private", "simple", name] if name in self.files:
                links = "".join(
                    f'<a href="{self.link(f"/private/files/{name}/{file}")}">{file}</a>\n'
                    for file in self.files[name]
                )
                return 200, f"<html><body>{links}</body></html>".encode()
            case ["private", "files", name, file] if file in self.files.get(name, {}):
                return 200, self.files[name][file]
        return 404, b"no such package"


@contextmanager
def serving() -> Iterator[Index]:
    """Serve an index within the context."""
    index = Index()

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, body = index.answer(self.path, self.headers.get("Authorization"))
            elsewhere = index.redirect(self.path)
            self.send_response(302 if elsewhere else status)
            if elsewhere:
                self.send_header("Location", elsewhere)
            self.send_header("Content-Type", "text/html")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)

        do_HEAD = do_GET  # noqa: N815 - the name that http.server looks for

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    server.daemon_threads = True
    index.port = server.server_port
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    try:
        yield index
    finally:
        server.shutdown()
        server.server_close()
