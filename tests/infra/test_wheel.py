"""The wheel, installed alone in a new environment: what `pip install nextfire` gives a user."""

import json
import os
import shutil
import subprocess
import sys
import threading
import tomllib
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from uv import find_uv_bin

from infra.app import ROOT
from nextfire.domain.key_text import secret_of, write_key
from tests.crons import LONG

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
_ONLY_POSIX = ("fcntl", "grp", "pty", "pwd", "resource", "termios", "tty")
_ONLY_POSIX_OS = ("fork", "getuid", "geteuid", "killpg", "O_NOFOLLOW", "O_NONBLOCK", "O_CLOEXEC")
"""Attributes of `os` that Windows does not have."""
_LAMBDA = "3.13"
"""The Python of the Lambda functions."""
_RESOLUTIONS = ["highest", "lowest-direct", _LAMBDA]
_PYENV = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
_KEY = write_key("default", "a" * 16, secret_of(bytes(32)))
_HEALTH = {"status": "ok", "time": "2026-05-24T10:00:00Z"}


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    _uv(
        "build", "--wheel", "--out-dir", str(folder),
        "--build-constraints", "requirements-build.txt", "--require-hashes",
    )  # fmt: skip
    [built] = folder.glob("*.whl")
    return built


@pytest.fixture(scope="module", params=_RESOLUTIONS if LONG else _RESOLUTIONS[1:])
def environment(
    request: pytest.FixtureRequest, wheel: Path, tmp_path_factory: pytest.TempPathFactory
) -> Path:
    """A virtual environment with the wheel, and the newest or the oldest dependencies that its
    bounds allow; or the newest on the Python of the Lambda functions, if this machine has it. In
    the short run, not the newest on this Python: all other tests have them.
    """
    folder = tmp_path_factory.mktemp(request.param)
    interpreter, resolution = sys.executable, request.param
    if request.param == _LAMBDA:
        interpreter, resolution = _interpreter(_LAMBDA), "highest"
    _uv("venv", "--quiet", "--python", interpreter, str(folder))
    python = str(folder / "bin" / "python")
    _uv("pip", "install", "--quiet", "--python", python, "--resolution", resolution, str(wheel))
    return folder


def _interpreter(version: str) -> str:
    """Python *version* on this machine; skips the test if it is not installed."""
    found = [shutil.which(f"python{version}"), *_PYENV.glob(f"{version}.*/bin/python{version}")]
    for path in [str(each) for each in found if each is not None]:
        # A shim of pyenv exists for versions that are not selected, and fails.
        if subprocess.run([path, "-c", ""], check=False, capture_output=True).returncode == 0:
            return path
    pytest.skip(f"no Python {version} on this machine")


@pytest.fixture(scope="module")
def api() -> Iterator[str]:
    """The URL of a server that answers as the health route of an API."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = json.dumps(_HEALTH | {"agent": self.headers["User-Agent"]}).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: object) -> None:
            """Keep the output of the tests short."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def _uv(*arguments: str) -> None:
    subprocess.run([find_uv_bin(), *arguments], cwd=ROOT, check=True, capture_output=True)


def run(environment: Path, program: str, *arguments: str, folder: Path) -> str:
    """The output of *program*, which sees nothing of this checkout."""
    done = subprocess.run(
        [environment / "bin" / program, *arguments],
        cwd=folder,
        env={"HOME": str(folder), "PATH": os.defpath},
        check=False,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_the_command_starts(environment: Path, tmp_path: Path) -> None:
    version = PROJECT["project"]["version"]

    assert run(environment, "nextfire", "--version", folder=tmp_path) == f"nextfire {version}\n"
    assert "Schedules jobs" in run(environment, "nextfire", "--help", folder=tmp_path)
    assert "--cron" in run(environment, "nextfire", "jobs", "create", "--help", folder=tmp_path)


def test_the_client_calls_an_api(environment: Path, tmp_path: Path, api: str) -> None:
    call = (
        "from nextfire import Client\n"
        f"with Client({api!r}, {_KEY!r}) as client:\n"
        "    print(client.get_health().document['agent'])"
    )

    agent = run(environment, "python", "-c", call, folder=tmp_path)

    assert agent.startswith(f"nextfire/{PROJECT['project']['version']} python-httpx2/")


def test_commands_that_need_an_extra_name_it(environment: Path, tmp_path: Path) -> None:
    done = subprocess.run(
        [environment / "bin" / "nextfire", "worker", "--help"],
        cwd=tmp_path, env={"HOME": str(tmp_path)}, check=False, capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    code = "from nextfire_cli.extras import missing_package as m\ntry:\n    import boto3\n"
    code += "except ModuleNotFoundError as error:\n    print(m(error).remedy)"

    remedy = run(environment, "python", "-c", code, folder=tmp_path)

    assert remedy == "Install it: pip install 'nextfire[aws]'\n"


def test_what_needs_no_stack_imports_no_module_of_posix(environment: Path, tmp_path: Path) -> None:
    """Otherwise the command and the client would not start on Windows."""
    code = (
        "import sys\n"
        f"sys.modules.update(dict.fromkeys({_ONLY_POSIX!r}))\n"  # imports of them fail
        "import nextfire_cli.main, nextfire\n"
        "nextfire.Client\n"
        "print('started')"
    )

    assert run(environment, "python", "-c", code, folder=tmp_path) == "started\n"


def test_commands_run_without_what_only_posix_has(
    environment: Path, tmp_path: Path, api: str
) -> None:
    """On macOS and Windows: log in, and call the API of the context."""
    (tmp_path / "key").write_text(_KEY)
    code = (
        "import os, sys\n"
        f"sys.modules.update(dict.fromkeys({_ONLY_POSIX!r}))\n"
        f"for name in {_ONLY_POSIX_OS!r}: delattr(os, name)\n"
        "from nextfire_cli.main import app, _COMMANDS\n"
        "for name, each in _COMMANDS.items(): each.load(name)\n"
        "def run(*args):\n"
        "    try: app(args)\n"
        "    except SystemExit as ended: assert not ended.code, args\n"
        f"run('login', {api!r}, '--name', 'here', '--key-file', 'key', '--no-check')\n"
        "run('context', 'list')\n"
        "run('jobs', 'get', 'job_1', '--json')\n"
    )

    printed = run(environment, "python", "-c", code, folder=tmp_path)

    assert "Context here: " in printed
    assert '"agent": "nextfire/' in printed


def test_the_test_kit_names_its_extra(environment: Path, tmp_path: Path) -> None:
    code = "import nextfire.testing as t\ntry:\n    t.Stack\nexcept ImportError as error:\n"

    remedy = run(environment, "python", "-c", f"{code}    print(error)", folder=tmp_path)

    assert remedy.endswith("Install it: pip install 'nextfire[testing]'\n")


def test_tests_of_jobs_run_with_the_extra(wheel: Path, tmp_path: Path) -> None:
    _uv("venv", "--quiet", str(tmp_path / "venv"))
    python = str(tmp_path / "venv" / "bin" / "python")
    _uv("pip", "install", "--quiet", "--python", python, f"nextfire[testing] @ {wheel.as_uri()}")
    _uv("pip", "install", "--quiet", "--python", python, "pytest")
    for file in ("test_my_jobs.py", "pipeline.yaml"):
        shutil.copy(ROOT / "examples" / file, tmp_path)

    arguments = ["-m", "pytest", "-q", "test_my_jobs.py"]
    printed = run(tmp_path / "venv", "python", *arguments, folder=tmp_path)

    assert "5 passed" in printed


def test_types_are_published(environment: Path) -> None:
    [packages] = environment.glob("lib/python*/site-packages")

    assert (packages / "nextfire" / "py.typed").exists()
    assert (packages / "nextfire_cli" / "py.typed").exists()


def test_the_functions_have_what_a_worker_outside_the_stack_has() -> None:
    """The group and the extras list the same packages with the same bounds."""
    project, groups = PROJECT["project"], PROJECT["dependency-groups"]
    extras = project["optional-dependencies"]
    everything = {*project["dependencies"], *extras["aws"], *extras["worker"]}

    assert {*groups["functions"]} <= everything
    assert groups["signatures"] == extras["signatures"]
    assert everything - {*groups["functions"], "nextfire[aws]"} == {
        each
        for each in project["dependencies"]
        if each.partition(">")[0] in {"httpx2", "pyyaml", "rich", "typer"}
    }
