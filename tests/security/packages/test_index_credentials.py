"""Attempts to get at the credentials of a package index."""

from __future__ import annotations

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from nextfire.domain.packages import check_index
from nextfire.domain.ports.scripts import ScriptExit
from tests.indexes import Index, serving, sha256, wheel
from tests.security.packages.conftest import CREDENTIALS, PASSWORD, refused, run, runner, script

SPY = f"""
import os, pathlib
secret, uv, found = b"{PASSWORD[:9]}" + b"{PASSWORD[9:]}", 0, []
for process in pathlib.Path("/proc").glob("[0-9]*"):
    if process.name == str(os.getpid()):
        continue
    for path in [process / "environ", process / "cmdline", *process.glob("fd/*")]:
        try:
            if path.parent.name == "fd" and not path.is_file():
                continue
            data = path.open("rb").read(1 << 20)
        except OSError:
            continue
        uv += b"UV_DEFAULT_INDEX" in data
        found += [str(path)] * (secret in data)
root = pathlib.Path.cwd().parent
for path in root.rglob("*"):
    try:
        data = path.read_bytes() if path.is_file() else b""
    except OSError:
        continue
    if path.is_relative_to(pathlib.Path.cwd()):
        continue
    found += [str(path)] * (secret in data)
print(uv > 0, found)
"""


@pytest.mark.usefixtures("not_root")
def test_a_script_next_to_an_installation_does_not_find_the_credentials(
    folder: Path, index: Index
) -> None:
    index.credentials = CREDENTIALS
    installing, spied = threading.Event(), threading.Event()

    def hold(path: str) -> None:
        if path.endswith(".whl"):
            installing.set()
            spied.wait(60)

    index.before = hold
    shared = runner(folder, index)
    with ThreadPoolExecutor(1) as other:
        installation = other.submit(run, shared, script("demo-pkg"))
        assert installing.wait(60)
        try:
            spy = run(shared, SPY)
        finally:
            spied.set()
        installed = installation.result()

    assert installed == ScriptExit(0, "ran\n", "")
    assert spy.stdout == "True []\n", "it sees the installer, but no credentials"


@pytest.mark.usefixtures("not_root")
def test_the_script_itself_does_not_find_the_credentials(folder: Path, index: Index) -> None:
    index.credentials = CREDENTIALS

    end = run(runner(folder, index), script("demo-pkg", body=SPY))

    assert end.exit_code == 0
    assert end.stdout.endswith(" []\n"), (
        "neither of this nor of another installation on the machine"
    )


@pytest.mark.parametrize("status", [401, 403, 400])
def test_an_index_that_fails_does_not_put_its_credentials_on_the_record(
    folder: Path, index: Index, status: int
) -> None:
    index.credentials, index.status = CREDENTIALS, status

    end = run(runner(folder, index), script("demo-pkg"))

    refused(end, f"it responded with {status} ", permanent=False)
    error = str(end.error)
    assert PASSWORD not in error
    assert "reader" not in error
    assert f":{index.port}" not in error
    assert "127.0.0.1" not in error


@pytest.mark.usefixtures("not_root")
def test_the_installer_gets_no_more_of_the_index_than_pages_and_files(
    folder: Path, index: Index
) -> None:
    """A neighbor that finds the proxy's address cannot use the credentials for anything else."""
    index.credentials = CREDENTIALS
    index.add("secret-pkg", wheel("secret-pkg"))
    addresses: list[str] = []
    answers: list[int] = []

    def look(path: str) -> None:
        if path.endswith(".whl") and not answers:
            answers.append(0)
            addresses.extend(_proxies(folder))
            for address in addresses:
                base = address.removesuffix("simple/")
                paths = ("simple/secret-pkg/", "simple/..%2f..%2fadmin/", "file/99/x.whl", "")
                answers.extend(_status(base + path) for path in paths)
                answers.append(_status(base.rsplit("/", 2)[0] + "/guess/simple/demo-pkg/"))

    index.before = look
    end = run(runner(folder, index, allow=["demo-pkg"]), script("demo-pkg"))

    assert end.exit_code == 0
    assert len(addresses) == 1
    assert answers == [0, 404, 404, 404, 404, 404]
    assert not any("secret-pkg" in path or "admin" in path for path in index.asked)


def _proxies(folder: Path) -> list[str]:
    """The proxy addresses given to the installers in *folder*."""
    found = set()
    for path in Path("/proc").glob("[0-9]*/environ"):
        try:
            variables = path.read_bytes().split(b"\0")
        except OSError:
            continue
        if any(each.startswith(f"HOME={folder}/".encode()) for each in variables):
            found |= {v.decode() for v in variables if v.startswith(b"UV_DEFAULT_INDEX=")}
    return [each.partition("=")[2] for each in found]


def _status(url: str) -> int:
    import urllib.error  # noqa: PLC0415
    import urllib.request  # noqa: PLC0415

    try:
        with urllib.request.urlopen(url, timeout=20) as answer:  # noqa: S310
            return int(answer.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


def test_credentials_do_not_follow_a_redirect_to_another_host(folder: Path, index: Index) -> None:
    index.credentials = CREDENTIALS
    with serving() as elsewhere:
        seen: list[str | None] = []
        elsewhere.add("demo-pkg", wheel("demo-pkg"))
        answer = elsewhere.answer

        def spy(path: str, authorization: str | None) -> tuple[int, bytes]:
            if path.startswith("/private/"):  # a script of another test connects to every port
                seen.append(authorization)
            return answer(path, None)

        elsewhere.answer = spy  # type: ignore[method-assign]
        index.redirect = lambda path: (
            f"http://127.0.0.1:{elsewhere.port}{path}" if path.endswith(".whl") else None
        )
        end = run(runner(folder, index), script("demo-pkg"))

    assert end == ScriptExit(0, "ran\n", "")
    assert seen
    assert set(seen) == {None}


def test_an_index_that_redirects_its_pages_elsewhere_is_not_followed(
    folder: Path, index: Index
) -> None:
    index.credentials = CREDENTIALS
    with serving() as elsewhere:
        elsewhere.add("demo-pkg", wheel("demo-pkg"))
        index.redirect = lambda path: f"http://127.0.0.1:{elsewhere.port}{path}"
        end = run(runner(folder, index), script("demo-pkg"))

    refused(end, "it responded with 302 Found", permanent=False)
    assert elsewhere.asked == []


@pytest.mark.parametrize(
    ("url", "problem"),
    [
        (f"https://{CREDENTIALS}@host/simple", "must not hold credentials"),
        ("https://token@host/simple", "must not hold credentials"),
        ("https://host/simple?token=x", "must not hold credentials"),
        ("http://host/simple", "must be an https:// URL"),
        ("http://127.0.0.1.host/simple", "must be an https:// URL"),
        ("file:///srv/simple", "must be an https:// URL"),
        ("https:///simple", "must be an https:// URL"),
    ],
)
def test_an_index_with_credentials_or_without_tls_is_refused(url: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem) as refusal:
        check_index(url)

    assert PASSWORD not in str(refusal.value)


@pytest.mark.parametrize(
    "link",
    [
        lambda path: path,
        lambda path: f"../..{path.removeprefix('/private')}",
        lambda path: f"{path}#sha256={sha256(wheel('demo-pkg'))}",
    ],
    ids=["absolute path", "relative", "with a hash"],
)
def test_links_of_every_form_go_by_the_proxy(
    folder: Path, index: Index, link: Callable[[str], str]
) -> None:
    index.credentials, index.link = CREDENTIALS, link

    assert run(runner(folder, index), script("demo-pkg")) == ScriptExit(0, "ran\n", "")
