"""What a script can reach or bring in through the packages that its executor installs."""

from __future__ import annotations

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from nextfire.adapters.packages.installer import Packages
from nextfire.adapters.packages.package_index import PackageIndex
from nextfire.adapters.scripts.host_abilities import HostFeatures
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.packages import PackagePolicy, check_index
from nextfire.domain.ports.scripts import Directive, ScriptCall, ScriptExit
from tests.indexes import Index, sdist, serving, sha256, wheel
from tests.places import host_folder
from tests.supervisors import Watch

PASSWORD = "pa55-of-the-index-b41c"
CREDENTIALS = f"reader:{PASSWORD}"


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder that every user can access."""
    path = Path(tempfile.mkdtemp(prefix="test-security-packages-"))
    path.chmod(0o711)
    yield path
    shutil.rmtree(path)


@pytest.fixture
def index() -> Iterator[Index]:
    with serving() as index:
        index.add("demo-pkg", wheel("demo-pkg"))
        yield index


@pytest.fixture
def not_root(monkeypatch: pytest.MonkeyPatch) -> None:
    """An executor that runs scripts as its own user, and sees all processes."""
    usual = os.geteuid() or 1000
    monkeypatch.setattr("nextfire.adapters.scripts.sandboxes.os.geteuid", lambda: usual)
    monkeypatch.setattr(
        "nextfire.adapters.scripts.sandboxes.probe_host", lambda _: HostFeatures(namespaces=False)
    )


def runner(folder: Path, index: Index, **policy: Any) -> ProcessScriptRunner:
    secret = index.credentials
    return ProcessScriptRunner(
        packages="inline",
        package_index=PackageIndex(index.url, None if secret is None else lambda: str(secret)),
        package_policy=PackagePolicy(**policy),
        temp_root=folder,
    )


def script(*dependencies: str, locked: list[str] | None = None, body: str = "") -> str:
    lines = ["# /// script", f"# dependencies = {list(dependencies)!r}"]
    if locked is not None:
        lines += ["# [tool.nextfire]", f"# locked = {locked!r}"]
    return "\n".join([*lines, "# ///", body or "print('ran')", ""])


def run(of: ProcessScriptRunner, source: str, *, tenant: str = "acme") -> ScriptExit:
    call = ScriptCall("script.py", source.encode(), "{}", timedelta(seconds=60), tenant)
    return of.run(call, Watch())


def refused(end: ScriptExit, why: str, *, permanent: bool = True) -> None:
    assert (end.exit_code, end.stdout) == (None, "")
    assert end.error is not None
    assert why in end.error
    assert end.permanent is permanent


# The credentials of the index

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


# What is installed


def test_a_dependency_that_is_a_url_or_a_path_is_refused(folder: Path, index: Index) -> None:
    of = runner(folder, index)
    for dependency in (
        f"demo-pkg @ {index.url}/x.whl",
        "demo-pkg @ https://127.0.0.1:9/demo_pkg-1.0-py3-none-any.whl",
        "demo-pkg @ git+https://127.0.0.1:9/repo",
        "demo-pkg @ file:///etc/passwd",
    ):
        refused(run(of, script(dependency)), "names a URL or a path")
    assert index.asked == []


@pytest.mark.parametrize(
    "line",
    [
        "-r /etc/passwd",
        "--index-url=http://127.0.0.1:9/",
        "--extra-index-url http://127.0.0.1:9/",
        "-e .",
        "./here",
        "demo-pkg --no-binary :all:",
    ],
)
def test_a_dependency_that_is_an_option_is_refused(folder: Path, index: Index, line: str) -> None:
    digest = sha256(wheel("demo-pkg"))
    good = f"demo-pkg==1.0 --hash=sha256:{digest}"

    refused(run(runner(folder, index), script(line)), "is not a requirement")
    for locked in ([good, line], [f"{good} {line}"], [f"{good}\\n{line}"]):
        end = run(runner(folder, index), script("demo-pkg", locked=locked))
        assert (end.exit_code, end.permanent) == (None, True)
    assert index.asked == []


@pytest.mark.parametrize("builds", [False, True])
def test_nothing_is_built_so_no_code_of_a_package_runs(
    folder: Path,
    index: Index,
    builds: bool,  # noqa: FBT001
) -> None:
    """The counterpart: where the pool allows builds, the same archive runs its code."""
    index.add("built", sdist("built", "raise SystemExit('its ' + 'code ' + 'ran')"))

    end = run(runner(folder, index, builds=builds), script("built"))

    refused(end, "Cannot install", permanent=False)
    assert ("its code ran" in str(end.error)) is builds


def test_a_transitive_package_that_is_not_allowed_is_refused(folder: Path, index: Index) -> None:
    """Dependency confusion: an allowed package requires one that anyone could upload."""
    index.add("friend", wheel("friend", requires=["acme-internal"]))
    index.add("acme-internal", wheel("acme-internal", "99.0", module="print('owned')\n"))
    body = "import acme_internal"

    open_pool = run(runner(folder, index), script("friend", body=body))
    end = run(runner(folder, index, allow=["Friend"]), script("friend", body=body))

    assert open_pool.stdout == "owned\n", "without the list it is installed"
    refused(end, "the pool does not allow the package acme-internal")


def test_a_package_that_is_not_allowed_is_refused(folder: Path, index: Index) -> None:
    of = runner(folder, index, allow=["friend"])
    digest = sha256(wheel("demo-pkg"))

    for source in (
        script("demo-pkg"),
        script("Demo.PKG>=1"),
        script("friend", locked=[f"demo-pkg==1.0 --hash=sha256:{digest}"]),
    ):
        refused(run(of, source), "the pool does not allow the package demo-pkg")
    assert index.asked == []


def test_a_package_with_another_hash_than_the_locked_is_not_installed(
    folder: Path, index: Index
) -> None:
    good = f"demo-pkg==1.0 --hash=sha256:{sha256(wheel('demo-pkg'))}"
    body = "import demo_pkg; print(demo_pkg.VALUE)"
    of = runner(folder, index, require_hashes=True)

    assert run(of, script("demo-pkg", locked=[good], body=body)).stdout == "42\n"
    index.add("demo-pkg", wheel("demo-pkg", module="print('owned')\n"))
    fresh = runner(folder, index, require_hashes=True)
    end = run(fresh, script("demo-pkg", locked=[good], body=body))

    refused(end, "Hash mismatch", permanent=False)


def test_a_lock_is_all_that_is_installed(folder: Path, index: Index) -> None:
    friend = wheel("friend", requires=["acme-internal"])
    index.add("friend", friend)
    index.add("acme-internal", wheel("acme-internal"))
    locked = [f"friend==1.0 --hash=sha256:{sha256(friend)}"]
    body = "import importlib.util as u; print(u.find_spec('acme_internal'))"

    end = run(runner(folder, index), script("friend", locked=locked, body=body))

    assert end.stdout == "None\n"
    assert not any("acme-internal" in path for path in index.asked)


def test_a_pool_that_requires_hashes_refuses_a_script_without_a_lock(
    folder: Path, index: Index
) -> None:
    of = runner(folder, index, require_hashes=True)

    refused(run(of, script("demo-pkg")), "nextfire scripts lock")
    refused(run(of, script("demo-pkg", locked=[])), "does not hold the dependency")
    refused(run(of, script("demo-pkg", locked=["demo-pkg==1.0"])), "--hash=sha256:DIGEST")
    assert index.asked == []


@pytest.mark.parametrize("also", [{"builds": True}, {"urls": True}])
def test_hashes_exclude_what_has_none(also: dict[str, bool]) -> None:
    with pytest.raises(ValueError, match="exclude each other"):
        PackagePolicy(require_hashes=True, **also)


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


# What code that runs in a build leaves for the executor, which may be root

PLANTS = """
import os
def build_wheel(folder, config_settings=None, metadata_directory=None):
    home = os.environ["HOME"]
    os.symlink("{victim}/written", home + "/script.py")
    os.symlink("{victim}", home + "/lib-of-others")
    os.rename(home + "/tmp", home + "/tmp-before")
    os.symlink("{victim}", home + "/tmp")
    os.makedirs(home + "/packages", exist_ok=True)
    if not os.fork():
        os.setsid()
        import time
        until = time.monotonic() + 20
        while time.monotonic() < until:
            try:
                os.rename(home + "/packages", home + "/packages-before")
                os.symlink("{victim}", home + "/packages")
                break
            except OSError:
                pass
        os._exit(0)
    raise SystemExit("built nothing")
"""


@pytest.mark.skipif(os.geteuid() != 0, reason="tests root's files")
def test_links_that_a_build_leaves_lead_root_nowhere(folder: Path, index: Index) -> None:
    victim = host_folder("test-victim-")
    try:
        (victim / "uv").mkdir()
        (victim / "uv" / "kept").write_text("root's")
        index.add("built", sdist("built", PLANTS.replace("{victim}", str(victim))))
        of = runner(folder, index, builds=True)

        end = run(of, script("built", body="import built; print(built.__file__)"))

        assert end.exit_code != 0
        assert sorted(path.name for path in victim.rglob("*")) == ["kept", "uv"]
        kept = [path for path in folder.rglob("kept") if path.is_file()]
        assert kept == [], "root's file was stored as a package"
    finally:
        shutil.rmtree(victim)


@pytest.mark.skipif(os.geteuid() != 0, reason="tests root's files")
def test_a_folder_of_packages_that_is_a_link_is_not_copied(folder: Path, tmp_path: Path) -> None:
    closed = tmp_path / "closed"
    closed.mkdir(mode=0o700)
    (closed / "key").write_text("root's")
    made = tmp_path / "work" / "packages"
    made.parent.mkdir()
    made.symlink_to(closed)
    packages = Packages(root=folder, separate=True, index=PackageIndex(), policy=PackagePolicy())

    with pytest.raises(OSError, match="not a folder"):
        packages._keep(made, folder / "set", "acme", lambda: Directive.CONTINUE)  # noqa: SLF001

    assert not (folder / "set").exists()
