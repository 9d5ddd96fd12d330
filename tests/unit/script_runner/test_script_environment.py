"""What a script is given: its environment, streams, folder and limits."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from nextfire.adapters.scripts.script_runner import ProcessScriptRunner, ScriptLimits
from nextfire.domain.ports.scripts import ScriptExit
from tests.unit.script_runner.conftest import AS_ROOT, Runner


def test_script_gets_payload_and_context(run: Runner) -> None:
    source = """
        import json, os, sys
        print(json.load(sys.stdin)["to"], os.environ["NEXTFIRE_ATTEMPT"])
    """
    end = run(source, payload='{"to": "Köln"}', environment={"NEXTFIRE_ATTEMPT": "2"})

    assert end == ScriptExit(0, "Köln 2\n", "")


def test_environment_holds_nothing_of_the_executor(
    run: Runner, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ("AWS_SECRET_ACCESS_KEY", "AWS_PROFILE", "NEXTFIRE_RUNS_TABLE", "PYTHONPATH"):
        monkeypatch.setenv(name, "/secret")
    end = run(
        "import json, os; print(json.dumps([dict(os.environ), os.getcwd()]))",
        path="/opt/bin:/bin",
        environment={"NEXTFIRE_RUN_ID": "r1", "HOME": "/root", "PYTHONPATH": "mine"},
    )
    environment, cwd = json.loads(end.stdout)

    assert environment.pop("NEXTFIRE_CHANNEL").isdigit()
    assert environment == {
        "PATH": "/opt/bin:/bin",
        "LANG": "C.UTF-8",
        "TZ": "UTC",
        "PYTHONUNBUFFERED": "1",
        "PYTHONPATH": f"{cwd}/lib:mine",
        "HOME": cwd,
        "TMPDIR": str(Path(cwd, "tmp")),
        "NEXTFIRE_RUN_ID": "r1",
    }


def test_script_has_standard_streams_and_its_channel_only(run: Runner) -> None:
    source = """
        import os
        listed = set(map(int, os.listdir("/proc/self/fd")))
        listed -= {0, 1, 2, int(os.environ["NEXTFIRE_CHANNEL"])}
        print([fd for fd in listed if os.path.lexists(f"/proc/self/fd/{fd}")])
    """
    reader, writer = os.pipe()
    os.set_inheritable(writer, True)
    try:
        end = run(source)
    finally:
        os.close(reader)
        os.close(writer)

    assert end.stdout == "[]\n"


@pytest.mark.parametrize("stream", ["stdout", "stderr"])
def test_standard_streams_can_be_opened_by_name(run: Runner, stream: str) -> None:
    end = run(f"open('/dev/{stream}', 'w').write(open('/dev/stdin').read())", payload="[1]")

    assert getattr(end, stream) == "[1]"


def test_script_leads_a_session_and_works_in_its_own_folder(run: Runner, folder: Path) -> None:
    source = """
        import os, tempfile
        print(os.getsid(0) == os.getpid(), os.getcwd(), tempfile.mkdtemp(), __file__)
        open("result.txt", "w").close()
    """
    own_session, cwd, temporary, script = run(
        source, name="s3://b/t/../gen voice.py"
    ).stdout.split()

    assert own_session == "True"
    assert Path(cwd).parent.parent == folder
    assert Path(temporary).parent == Path(cwd) / "tmp"
    assert script == f"{cwd}/gen_voice.py"


@pytest.mark.parametrize("name", ["json", "..", "", "-c", "/", "a" * 300, "böse\n\0.py"])
def test_any_name_is_accepted(run: Runner, name: str) -> None:
    end = run("import json; print(json.dumps(1))", name=name)

    assert end == ScriptExit(0, "1\n", "")


def test_limits(run: Runner) -> None:
    source = """
        from resource import *
        for kind in (RLIMIT_CORE, RLIMIT_DATA, RLIMIT_FSIZE, RLIMIT_NOFILE, RLIMIT_NPROC):
            print(*getrlimit(kind))
        print(getrlimit(RLIMIT_CPU)[0] >= 70, getrlimit(RLIMIT_CPU)[0] < 1000)
        print(open("/proc/self/oom_score_adj").read())
    """
    limits = ScriptLimits(memory_bytes=100 << 20, processes=20, file_bytes=1 << 20)
    core, data, file, files, processes, cpu, score = run(
        source, limits=limits, timeout=10
    ).stdout.split("\n")[:7]

    assert (core, data, file, files) == (
        "1 1",  # 0 does not stop dumps that the host pipes to a program
        "104857600 104857600",
        "1048576 1048576",
        "1024 1024",
    )
    assert (cpu, score) == ("True True", "1000")
    if AS_ROOT:
        assert processes == "20 20"
    else:  # without namespaces, tasks of other processes of the user count as well
        assert int(processes.split()[0]) >= 20


def test_cap_that_keeps_nothing_is_refused() -> None:
    with pytest.raises(ValueError, match="at least 2 bytes"):
        ProcessScriptRunner(output_cap=1)
