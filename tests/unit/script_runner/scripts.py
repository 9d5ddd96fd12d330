"""Scripts that several tests run."""

from __future__ import annotations

ENDLESS = "import time\nwhile True: time.sleep(1)\n"

FORKING = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGTERM, signal.SIG_IGN)
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(60)"])
print(os.getpid(), child.pid)
"""
"""A script and a child that both ignore SIGTERM; the script prints both process ids."""

DAEMON = """
import os, sys, time
if not os.fork():
    os.setsid()
    if not os.fork():
        print(os.getpid(), flush=True)
        for n in range(3): os.close(n)
        time.sleep(60)
    os._exit(0)
os.wait()
time.sleep(0.3)
"""
"""A script that leaves a daemon in another session, without a parent, and prints its id."""

BY_THEN = 2.5
"""Seconds until a script has started and installed its SIGTERM handler, even on a busy machine."""
