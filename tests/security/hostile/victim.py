"""An innocent script that puts canaries wherever a script can store something.

Standard input: `hex`, the secret part of canaries; `tag`, of the attack; and `own`, part of the
names of stored objects. It prints the places where it could not store anything.
"""

from __future__ import annotations

import ctypes
import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import threading

KEYS = {"x86_64": (248, 240, 242), "aarch64": (217, 180, 182)}[os.uname().machine]
given = json.loads(sys.stdin.read())
libc = ctypes.CDLL(None, use_errno=True)
libc.shmat.restype = ctypes.c_void_p


def canary(where: str) -> str:
    return f"canary-{where}-{given['hex']}"


def serve(end: socket.socket) -> None:
    while True:
        caller, _ = end.accept()
        with caller:
            caller.sendall(canary("socket").encode())


def keep() -> list[str]:
    """Put canaries everywhere. Returns the files outside its folder."""
    paths = ["kept.txt", *(f"{place}/{given['own']}" for place in ("/tmp", "/dev/shm"))]
    for path in paths:
        with open(path, "w", encoding="utf-8") as file:
            file.write(canary("file"))
    segment = libc.shmget(0, 4096, 0o1600)
    address = libc.shmat(segment, None, 0)
    if address not in {None, ctypes.c_void_p(-1).value}:
        ctypes.memmove(address, canary("shared-memory").encode(), 60)
    text, name = canary("keyring").encode(), given["tag"].encode()
    for ring in (-4, -5):
        libc.syscall(KEYS[0], b"user", name, text, len(text), ring)
    queue = libc.syscall(KEYS[1], name, os.O_RDWR | os.O_CREAT, 0o600, None)
    if queue >= 0:
        text = canary("queue").encode()
        for _ in range(5):
            libc.syscall(KEYS[2], queue, text, len(text), 0, None)
    end = socket.socket(socket.AF_UNIX)
    end.bind("\0nextfire-victim-" + given["own"])
    end.listen()
    threading.Thread(target=serve, args=(end,), daemon=True).start()
    return paths[1:]


def main() -> None:
    """Keep the canaries until SIGTERM; then check that everything is unchanged."""
    ended = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: ended.set())
    elsewhere = keep()
    held = tempfile.TemporaryFile()
    held.write(canary("open-file").encode())
    held.flush()
    child = subprocess.Popen(
        [sys.executable, "-c", "import time; time.sleep(600)", canary("argument")],
        start_new_session=True,  # protects it from the SIGTERM that ends this script
    )
    print("ready", flush=True)
    while not ended.is_set():
        ended.wait(0.1)
    whole = all(open(path, encoding="utf-8").read() == canary("file") for path in elsewhere)
    alive = child.poll() is None
    child.kill()
    child.wait()
    for path in elsewhere:
        os.unlink(path)
    print("unharmed" if whole and alive else f"harmed: {whole=} {alive=}", flush=True)


if __name__ == "__main__":
    main()
