"""The output of scripts, which is kept up to a cap."""

from __future__ import annotations

import os
import signal
import threading
import time

import pytest

from nextfire.adapters.scripts.script_streams import Pump
from nextfire.adapters.scripts.script_streams import Stream as ReadingEnd
from nextfire.domain.ports.scripts import Directive
from tests.unit.script_runner.conftest import CAP, Runner
from tests.unit.script_runner.scripts import BY_THEN, ENDLESS


def test_long_output_keeps_its_first_and_its_last_half(run: Runner) -> None:
    end = run("import sys; sys.stdout.write('a' * 3000 + 'b' * 200_000 + 'c' * 700)")

    assert end.stdout == "a" * 500 + "\n… [202700 bytes cut] …\n" + "c" * 500


@pytest.mark.parametrize(("size", "cut"), [(CAP, False), (CAP + 1, True)])
def test_cap_is_exact(run: Runner, size: int, cut: bool) -> None:  # noqa: FBT001
    end = run(f"import sys; sys.stderr.write('x' * {size})")

    assert end.stderr.count("x") == CAP
    assert ("[1 bytes cut]" in end.stderr) is cut


@pytest.mark.parametrize(
    ("printed", "last_lines"),
    [
        ("'a' * CAP", ""),
        ("'a' * 3000 + '\\nValueError: ' + 'x' * 600", "ValueError: " + "x" * 600),
        ("'a' * 400 + '\\nValueError: ' + 'x' * 990", "ValueError: " + "x" * 990),
        ("'ValueError: ' + 'x' * 9000", "ValueError: " + "x" * 1012 + "…" + "x" * 500),
        ("'10 %\\r20 %\\r' + 'x' * 1001", "x" * 1001),
    ],
)
def test_a_long_last_line_keeps_its_beginning(run: Runner, printed: str, last_lines: str) -> None:
    end = run(f"import sys; CAP = {CAP}; sys.stderr.write({printed})")

    assert end.last_lines == last_lines


def test_endless_output_is_drained_until_the_timeout(run: Runner) -> None:
    end = run("while True: print('z' * 100_000)", timeout=0.7)

    assert (end.timed_out, end.exit_code) == (True, -signal.SIGTERM)
    assert end.stdout.count("z") + end.stdout.count("\n") <= CAP + 2
    assert int(end.stdout.partition("[")[2].partition(" ")[0]) > 1_000_000


def test_output_written_right_before_the_exit_arrives_whole(run: Runner) -> None:
    source = """
        import fcntl, os, time
        fcntl.fcntl(1, fcntl.F_SETPIPE_SZ, 1 << 20)  # more than one read
        time.sleep(0.3)
        os.write(1, b"x" * 1_000_000)
        os._exit(0)
    """

    def ask() -> Directive:
        time.sleep(0.8)
        return Directive.CONTINUE

    assert f"[{1_000_000 - CAP} bytes cut]" in run(source, ask=ask).stdout


def test_binary_output(run: Runner) -> None:
    end = run(r"import sys; sys.stdout.buffer.write(b'a\x00\xff\xc3\xa4\xf0')")

    assert end.stdout == "a\0?ä?"  # each replacement is at most as long as the replaced bytes


def test_script_that_takes_its_own_output_does_not_block_the_runner() -> None:
    """Data that was available when polled is gone when it is read."""
    reader, writer = os.pipe()
    got: list[bytes] = []
    stream = ReadingEnd(reader, got.append)
    reading = threading.Thread(target=stream.ready, args=(0,), daemon=True)
    try:
        reading.start()
        reading.join(5)
        assert not reading.is_alive()
        assert not stream.ended
        os.write(writer, b"more")
        with Pump() as pump:
            pump.add(stream)
            pump.step(5)
    finally:
        os.close(writer)
        reading.join()
        os.close(reader)

    assert got == [b"more"]


def test_output_before_the_end_is_kept_when_it_is_killed(run: Runner) -> None:
    assert run("print('step 1')\n" + ENDLESS, timeout=BY_THEN).stdout == "step 1\n"
