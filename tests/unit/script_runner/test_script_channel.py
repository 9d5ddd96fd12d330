"""The channel: checkpoints and results of scripts."""

from __future__ import annotations

import json
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from textwrap import dedent
from typing import Any

import pytest

from nextfire.adapters.scripts.script_channel import Channel
from nextfire.domain.errors import UnavailableError
from nextfire.domain.masking import Masker
from tests.supervisors import Watch
from tests.unit.script_runner.conftest import Runner
from tests.unit.script_runner.scripts import ENDLESS


def test_checkpoint_is_given_to_the_next_attempt(run: Runner) -> None:
    source = """
        import nextfire_job
        before = nextfire_job.checkpoint()
        print(before)
        nextfire_job.save_checkpoint({"done": (before or {"done": 0})["done"] + 1})
    """
    watch = Watch()

    assert [run(source, watch=watch).stdout for _ in range(3)] == [
        "None\n",
        "{'done': 1}\n",
        "{'done': 2}\n",
    ]
    assert watch.saved == b'{"done":3}'


def test_last_result_counts(run: Runner) -> None:
    end = run("from nextfire_job import result; result(1); result({'ä': [None, 1.5]})")

    assert end.result == '{"ä":[null,1.5]}'.encode()


def test_result_is_kept_of_a_script_that_is_killed(run: Runner) -> None:
    end = run("import nextfire_job; nextfire_job.result(7)\n" + ENDLESS, timeout=1)

    assert (end.timed_out, end.result) == (True, b"7")


def test_refused_values_are_reported(run: Runner) -> None:
    source = """
        import nextfire_job as n
        for value in (1, "x" * (1 << 20)):
            for keep in (n.save_checkpoint, n.result):
                try:
                    keep(value)
                    print("kept")
                except n.NotKeptError as error:
                    print(error)
    """
    watch = Watch()
    watch.refusal = "the lease is lost"
    end = run(source, watch=watch)

    assert end.result == b"1"
    assert end.stdout.splitlines() == [
        "the lease is lost",
        "kept",
        "the value has 1048578 bytes; the maximum is 1048576",
        "the value has 1048578 bytes; the maximum is 1048576",
    ]


def test_a_value_is_kept_if_all_its_readers_can_decode_it(run: Runner) -> None:
    source = """
        import nextfire_job as n
        for levels in (200, 201, 5000):
            value = []
            for _ in range(levels - 1): value = [value]
            for keep in (n.save_checkpoint, n.result):
                try:
                    keep(value)
                    print("kept")
                except n.NotKeptError as error:
                    print(error)
    """
    watch = Watch()
    end = run(source, watch=watch)

    assert end.stdout.splitlines() == [
        *["kept"] * 2,
        *["the value is nested more than 200 levels deep; flatten it"] * 4,
    ]
    assert end.result == watch.saved == b"[" * 200 + b"]" * 200


@pytest.mark.parametrize("levels", [901, 5000])
def test_a_checkpoint_that_an_older_version_kept_may_be_too_deep(run: Runner, levels: int) -> None:
    source = """
        import nextfire_job
        try:
            nextfire_job.checkpoint()
        except nextfire_job.NotKeptError as error:
            print(error)
    """
    watch = Watch()
    watch.saved = b"[" * levels + b"]" * levels

    assert "nested" in run(source, watch=watch).stdout


def test_a_checkpoint_is_saved_again_until_the_database_answers(run: Runner) -> None:
    class Throttled(Watch):
        refused = 0

        def save(self, checkpoint: bytes) -> str | None:
            if self.refused < 2:
                self.refused += 1
                raise UnavailableError("throttled")
            return super().save(checkpoint)

    watch = Throttled()
    fast = "import nextfire_job as n; n._SAVE_AGAIN_AFTER = 0.01\n"
    end = run(f"{fast}n.save_checkpoint(1)", watch=watch)

    assert (end.exit_code, watch.saved, watch.refused) == (0, b"1", 2)

    watch.refused = -(10**6)
    end = run(f"{fast}n._SAVE_AGAIN_FOR = 0.05\nn.save_checkpoint(2)", watch=watch)

    assert (end.exit_code, watch.saved) == (1, b"1")
    assert end.stderr.endswith("NotKeptError: the checkpoint was not stored: throttled\n")


CHILDREN = """
    import os, nextfire_job as n
    n.save_checkpoint(7)
    for _ in range(3):
        if not os.fork():
            found = {n.checkpoint() for _ in range(300) if n.result(1) is None}
            os._exit(found != {7})
    print({os.wait()[1] for _ in range(3)})
"""
KILLED = """
    import os, random, time, nextfire_job as n
    n.save_checkpoint("c" * 200_000)
    for _ in range(30):
        child = os.fork()
        while not child:
            n.checkpoint()
            n.result("x" * 100_000)
        time.sleep(random.random() / 50)
        os.kill(child, 9)
        os.wait()
        assert n.checkpoint() == "c" * 200_000
    print({0})
"""
THREAD = """
    import os, threading, warnings, nextfire_job as n
    warnings.simplefilter("ignore")  # of forks next to a thread, which is what is tested
    n.save_checkpoint(7)
    statuses = []
    thread = threading.Thread(target=lambda: [n.checkpoint() for _ in iter(statuses.__len__, 50)])
    thread.start()
    while len(statuses) < 50:
        if not os.fork():
            os._exit(n.checkpoint() != 7)
        statuses.append(os.wait()[1])
    thread.join()
    print({*statuses})
"""
SIGNALS = """
    import signal, nextfire_job as n
    n.save_checkpoint(7)
    wrong, handled = {0}, []
    def handle(*_):
        handled.append(n.checkpoint())
        signal.setitimer(signal.ITIMER_REAL, 0.001)  # the next one: handlers are not nested
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    while len(handled) < 200:
        if n.result(1) is not None or n.checkpoint() != 7:
            wrong.add(1)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    print(wrong if {*handled} == {7} else handled)
"""
LONG_REQUESTS = """
    import signal, nextfire_job as n
    def handle(*_):
        n.result(2)
        signal.setitimer(signal.ITIMER_REAL, 0.001)  # the next one: handlers are not nested
    signal.signal(signal.SIGALRM, handle)
    signal.setitimer(signal.ITIMER_REAL, 0.001)
    for _ in range(20):
        n.result("x" * 1_000_000)
    signal.signal(signal.SIGALRM, signal.SIG_IGN)
    print({0})
"""


@pytest.mark.parametrize(
    "source",
    [CHILDREN, KILLED, THREAD, SIGNALS, LONG_REQUESTS],
    ids=["children", "killed", "thread", "signals", "long requests"],
)
def test_each_caller_gets_its_own_answers(run: Runner, source: str) -> None:
    end = run(source)

    assert (end.stdout, end.stderr, end.exit_code) == ("{0}\n", "", 0)


ASK = """
import os, socket
channel = socket.socket(fileno=int(os.environ["NEXTFIRE_CHANNEL"]))
replies = channel.makefile("rb")
def ask(line):
    channel.sendall(line + b"\\n")
    print(replies.readline().decode()[:40])
"""


@pytest.mark.parametrize(
    "line",
    [
        b"",
        b"{",
        b"[1]",
        b"7",
        b'{"op": "checkpoint.save"}',
        b'{"op": "format"}',
        b'{"op": "result", "value": NaN}',
        b'{"op": "result", "value": 1e999}',
        b'{"op": "result", "value": "\\ud800"}',
        b'{"op": "result", "value": ' + b"9" * 5000 + b"}",
        b'{"op": "result", "value": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
        b"\xff\xfe",
    ],
    ids=range(12),
)
def test_invalid_request_is_answered(run: Runner, line: bytes) -> None:
    code = line if len(line) < 9000 else b""
    payload = line.decode("latin-1")
    end = run(
        ASK
        + "import sys\nline = sys.stdin.buffer.read().decode().encode('latin-1')\n"
        + 'ask(line)\nask(b\'{"op": "result", "value": 1}\')',
        payload=payload,
    )

    assert '"ok": false' in end.stdout.splitlines()[0], code
    assert (end.exit_code, end.result) == (0, b"1")


def test_flood_of_requests_does_not_delay_the_timeout(run: Runner) -> None:
    flood = ASK + 'while True: channel.sendall(b\'{"op": "checkpoint.load"}\\n\')'
    watch = Watch()
    watch.saved = b'"' + b"x" * 1_000_000 + b'"'
    end = run(flood, watch=watch, timeout=1)

    assert end.timed_out


def test_flood_of_large_requests_takes_a_share_of_the_cpu_only(run: Runner) -> None:
    """Parsing them takes the interpreter's lock, which all runs of the executor need."""
    flood = """
        line = b'{"op": "result", "value": [' + b"1," * 400_000 + b"1]}"
        while True: ask(line)
    """
    before = time.thread_time()

    assert run(ASK + dedent(flood), timeout=4).timed_out

    assert time.thread_time() - before < 1.5


def test_request_without_an_end_is_refused(run: Runner) -> None:
    endless = """
        try:
            while True: channel.sendall(b"x" * 100_000)
        except OSError:
            print("closed")
    """
    assert run(ASK + dedent(endless)).stdout == "closed\n"


def test_error_of_the_supervisor_in_a_save_ends_the_script(run: Runner) -> None:
    class Broken(Watch):
        def save(self, checkpoint: bytes) -> str | None:
            raise LookupError("supervisor", checkpoint)

    with pytest.raises(LookupError, match="supervisor"):
        run("import nextfire_job; nextfire_job.save_checkpoint(1)\n" + ENDLESS, watch=Broken())


def _set_result(value: object) -> None:
    """What a script that sets its result makes its executor do."""
    script, executor = socket.socketpair()
    with script, executor:
        channel = Channel(executor, Watch(), Masker())
        line = json.dumps({"op": "result", "value": value}).encode() + b"\n"
        sender = threading.Thread(target=script.sendall, args=[line])
        sender.start()
        while channel.result is None:
            channel.ready(0)
        sender.join()


@pytest.mark.parametrize(("kilobytes", "most"), [(1, 2), (200, 1)])
def test_large_requests_are_parsed_one_at_a_time(
    monkeypatch: pytest.MonkeyPatch, kilobytes: int, most: int
) -> None:
    """Parsed, they take up to thirty times the memory."""
    loads, both, parsing, seen = json.loads, threading.Barrier(2), [0], [0]

    def slowly(*given: Any, **named: Any) -> Any:
        parsing[0] += 1
        seen[0] = max(seen[0], parsing[0])
        with suppress(threading.BrokenBarrierError):
            both.wait(timeout=5 if most > 1 else 0.2)
        found = loads(*given, **named)
        parsing[0] -= 1
        return found

    monkeypatch.setattr(json, "loads", slowly)
    with ThreadPoolExecutor(2) as executor:
        [*executor.map(_set_result, ["x" * 1024 * kilobytes] * 2)]

    assert seen == [most]
