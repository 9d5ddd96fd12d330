"""Attacks of scripts on each other, their executor and their host: one test per exploit."""

from __future__ import annotations

import os
import shutil
import uuid
from datetime import timedelta
from pathlib import Path
from textwrap import dedent

import pytest

from nextfire.adapters.scripts import covered, folders, sandboxes
from nextfire.adapters.scripts.host_abilities import HostFeatures
from nextfire.adapters.scripts.script_runner import ProcessScriptRunner
from nextfire.domain.ports.scripts import ScriptCall
from tests.crons import LONG
from tests.places import host_folder
from tests.security.hosts import Host, Script, hosts
from tests.security.processes import script
from tests.supervisors import Watch

HOSTS = hosts()


# What processes inherit


@pytest.mark.parametrize(
    "host", HOSTS if LONG else [HOSTS[0], HOSTS[-1]], ids=lambda host: host.name
)
def test_no_process_inherits_the_executors_environment(host: Host, folder: Path) -> None:
    """One script leaves a folder that is slow to remove; another looks for the removing process."""
    leaves_much = """
        import os
        for n in range(300):
            os.makedirs(f"deep/{n}/" + "d/" * 12)
        for n in range(3000):
            open(f"file{n}", "w").close()
    """
    looks = f"""
        import time
        until = time.monotonic() + 6
        while time.monotonic() < until:
            for found in search({host.canary.encode()!r}):
                print("found in", found, flush=True)
            time.sleep(0.02)
    """
    report = host.run(folder, [script(looks), *[script(leaves_much)] * 4])

    assert report.printed() == ""
    assert [end["exit_code"] for end in report.ends[0]] == [0] * 5


def test_every_process_gets_an_environment_of_its_own_by_an_absolute_path(
    host: Host, folder: Path
) -> None:
    mess = (
        "import os; os.makedirs('a/b'); os.chmod('a', 0); [os.mkdir(f'd{n}') for n in range(500)]"
    )
    report = host.run(folder, [Script(mess), Script("print(1)")])

    assert report.started
    for each in report.started:
        assert Path(each["program"]).is_absolute()
        assert each["environment"] is not None
        assert host.canary not in each["environment"].values()


# What a script sees


def test_a_script_sees_no_process_but_its_own(host: Host, folder: Path) -> None:
    if not host.namespaces:
        pytest.skip("requires a process namespace")
    source = """
        import os, subprocess
        child = subprocess.Popen(["sleep", "5"])
        seen = {int(pid) for pid in os.listdir("/proc") if pid.isdigit()}
        # Process 1 started it; if that is another user's process, it is hidden.
        print(seen - {1, os.getpid(), child.pid})
        child.kill()
    """
    assert host.run(folder, [Script(dedent(source))]).printed() == "set()\n"


def test_the_environment_of_others_is_closed(host: Host, folder: Path) -> None:
    if host.user is not None and not host.namespaces and not landlock():
        pytest.skip("requires namespaces or Landlock version 6")
    looks = """
        import time
        until = time.monotonic() + 3
        while time.monotonic() < until:
            for found in search(b"the neighbour's secret"):
                print("found in", found, flush=True)
            time.sleep(0.05)
    """
    report = host.run(
        folder,
        [
            script(looks),
            Script(
                "import time; time.sleep(2); print('alive')",
                tenant="other",
                environment={"SECRET": "the neighbour's secret"},
            ),
        ],
    )

    assert report.printed() == "alive\n"


def test_files_of_other_runs_are_closed(host: Host, folder: Path) -> None:
    if host.user is not None and not host.namespaces:
        pytest.skip("requires namespaces, or a user for each run")
    secret = uuid.uuid4().hex
    first, second = secret[:16], secret[16:]  # so that no script source contains all of it
    looks = f"""
        import os, time
        until = time.monotonic() + 3
        secret = ({first!r} + {second!r}).encode()
        mine = os.getcwd()
        while time.monotonic() < until:
            for top in ({str(folder)!r}, "/tmp", "/var/tmp", "/dev/shm"):
                for place, _, files in os.walk(top):
                    for file in files if not place.startswith(mine) else ():
                        try:
                            if secret in open(os.path.join(place, file), "rb").read(1000):
                                print("found", place, file, flush=True)
                        except OSError:
                            pass
            time.sleep(0.05)
    """
    keeps = f"""
        import os, time
        text = {first!r} + {second!r}
        for place in (os.getcwd(), "/tmp", "/dev/shm"):
            with open(f"{{place}}/kept-{{os.getpid()}}", "w") as file:
                file.write(text)
        time.sleep(2)
    """
    report = host.run(folder, [script(looks), Script(dedent(keeps), tenant="other")])

    assert report.printed() == ""
    assert [end["exit_code"] for end in report.ends[0]] == [0, 0]


def landlock() -> bool:
    import ctypes  # noqa: PLC0415

    return int(ctypes.CDLL(None).syscall(444, None, 0, 1)) >= 6


# Attacks through the cleanup


@pytest.mark.skipif(os.geteuid() != 0, reason="tests root's cleanup")
def test_the_cleanup_changes_nothing_by_a_symbolic_link(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A folder is replaced by a link between the check and the change of its mode."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir(mode=0o755)
    (elsewhere / "file").touch()
    left = tmp_path / "nextfire-sandbox-run-attack"
    left.mkdir(mode=0)
    os.chown(left, 60_000, 60_000)

    def swap() -> None:
        if not left.is_symlink():
            left.rmdir()
            left.symlink_to(elsewhere)

    chmod = Path.chmod

    def attacked(path: Path, mode: int, **options: bool) -> None:
        swap()
        chmod(path, mode, **options)

    monkeypatch.setattr(Path, "chmod", attacked)

    folders.sweep(tmp_path, lambda owner: owner == 60_000)

    assert elsewhere.stat().st_mode & 0o777 == 0o755
    assert (elsewhere / "file").exists()


@pytest.mark.parametrize("host", HOSTS[:1], ids=["here"], indirect=True)
def test_a_credential_file_that_all_users_may_read_is_hidden(host: Host, folder: Path) -> None:
    """As Kubernetes projects the token of a role into a container that runs as root."""
    if not host.namespaces:
        pytest.skip("requires a mount namespace")
    place = host_folder("test-token-")
    try:
        token = place / "token"
        token.write_text("secret")
        for path, mode in ((place, 0o755), (token, 0o644)):
            path.chmod(mode)
        runner = ProcessScriptRunner(temp_root=folder, credentials=[token])
        source, watch = f"print(open({str(token)!r}).read())", Watch()

        end = runner.run(ScriptCall("a.py", source.encode(), "", timedelta(seconds=20), "t"), watch)

        assert "FileNotFoundError" in end.stderr
        assert "secret" not in end.stdout
    finally:
        shutil.rmtree(place)


@pytest.mark.parametrize("is_visible", [False, True])
@pytest.mark.parametrize("host", HOSTS[:1], ids=["here"], indirect=True)
def test_secrets_that_an_orchestrator_mounts_in_run_are_hidden(
    host: Host, folder: Path, monkeypatch: pytest.MonkeyPatch, *, is_visible: bool
) -> None:
    """Kubernetes' token of a pod's service account, and the secrets of Docker. Not if the worker
    makes the folder visible: it may be that of the scripts' secrets.
    """
    if not host.namespaces:
        pytest.skip("requires a mount namespace")
    place = host_folder("test-run-")
    monkeypatch.setattr(covered, "_RUN", place)
    try:
        token = place / "secrets" / "kubernetes.io" / "token"
        token.parent.mkdir(parents=True)
        token.write_text("secret")
        for path, mode in ((place, 0o755), (token, 0o644)):
            path.chmod(mode)
        runner = ProcessScriptRunner(
            temp_root=folder, visible=[place / "secrets"] if is_visible else []
        )
        source, watch = f"print(open({str(token)!r}).read())", Watch()

        end = runner.run(ScriptCall("a.py", source.encode(), "", timedelta(seconds=20), "t"), watch)

        assert ("FileNotFoundError" in end.stderr) is not is_visible
        assert ("secret" in end.stdout) is is_visible
    finally:
        shutil.rmtree(place)


@pytest.mark.skipif(os.geteuid() != 0, reason="scripts of other users can read all their files")
@pytest.mark.parametrize(("mode", "warned"), [(0o644, True), (0o600, False)])
def test_an_executor_that_cannot_hide_a_credential_file_warns(
    folder: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    mode: int,
    *,
    warned: bool,
) -> None:
    monkeypatch.setattr(sandboxes, "probe_host", lambda _: HostFeatures(namespaces=False))
    token = folder / "token"
    token.touch()
    token.chmod(mode)

    ProcessScriptRunner(temp_root=folder, credentials=[token])

    assert (f"scripts may read the executor's credentials in {token}" in caplog.text) is warned


@pytest.mark.parametrize("host", HOSTS[:1], ids=["here"], indirect=True)
def test_a_folder_that_the_worker_makes_visible_is_seen(folder: Path) -> None:
    data = folder / "data"
    data.mkdir(mode=0o777)
    data.chmod(0o777)
    runner = ProcessScriptRunner(temp_root=folder, visible=[data])
    source = f"open({str(data / 'made')!r}, 'w').write('here')"

    end = runner.run(ScriptCall("a.py", source.encode(), "", timedelta(seconds=20), "t"), Watch())

    assert end.exit_code == 0, end.stderr
    assert (data / "made").read_text() == "here"


def test_the_executors_credential_files_are_hidden(host: Host, folder: Path) -> None:
    if host.user is None or not host.namespaces:
        pytest.skip("root's files are closed to script users; without namespaces they are open")
    home = host_folder("test-home-")
    try:
        (home / ".aws").mkdir()
        (home / ".aws" / "credentials").write_text("secret")
        for path in (home, home / ".aws", home / ".aws" / "credentials"):
            os.chown(path, host.user, host.user)
        looks = f"""
            import os
            for file in ("{home}/.aws/credentials", "/run/user"):
                try:
                    print("found", os.listdir(file) if os.path.isdir(file) else open(file).read())
                except OSError:
                    pass
        """
        report = host.run(folder, [Script(dedent(looks))], HOME=str(home))

        assert "secret" not in report.printed()
        assert report.printed() in {"", "found []\n"}
    finally:
        shutil.rmtree(home)
