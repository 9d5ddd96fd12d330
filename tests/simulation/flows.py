"""What users and the environment do to the system in a history. `FLOWS` lists the flows."""

from __future__ import annotations

from tests.simulation.environment_flows import (
    audit,
    black_out,
    calm,
    clock_step,
    dispatch_outage,
    doubled_message,
    invoke_watcher_twice,
    junk_entry,
    junk_message,
    kill,
    kill_soon,
    remove_pool,
    skip_minutes,
    spoil_job,
    storm,
    terminate_worker,
    worker_outage,
)
from tests.simulation.flow import Flow
from tests.simulation.job_flows import (
    change_what,
    change_when,
    create_once,
    crowd,
    delete,
    drain,
    pause,
    pause_until,
    register,
    resume,
)
from tests.simulation.run_flows import (
    backfill,
    burst,
    cancel,
    look,
    redrive,
    redrive_pool,
    run_now,
    skip_next,
)
from tests.simulation.vandals import vandal

FLOWS = [
    Flow("register", 6, register),
    Flow("create once", 4, create_once),
    Flow("crowd", 2, crowd),
    Flow("change when", 6, change_when),
    Flow("change what", 3, change_what),
    Flow("pause", 4, pause),
    Flow("pause until", 5, pause_until),
    Flow("drain", 4, drain),
    Flow("resume", 4, resume),
    Flow("delete", 1, delete),
    Flow("cancel", 8, cancel),
    Flow("redrive", 6, redrive),
    Flow("redrive a pool", 1, redrive_pool),
    Flow("run now", 6, run_now),
    Flow("burst", 2, burst),
    Flow("skip next", 5, skip_next),
    Flow("backfill", 5, backfill),
    Flow("look", 1, look),
    Flow("kill", 5, kill),
    Flow("kill soon", 10, kill_soon),
    Flow("terminate a worker", 3, terminate_worker),
    Flow("clock step", 2, clock_step),
    Flow("invoke a watcher twice", 2, invoke_watcher_twice),
    Flow("skip minutes", 1, skip_minutes),
    Flow("outage of watchers", 2, dispatch_outage),
    Flow("outage of workers", 2, worker_outage),
    Flow("black-out", 1, black_out),
    Flow("storm", 8, storm),
    Flow("calm", 4, calm),
    Flow("spoil a job", 1, spoil_job),
    Flow("junk entry", 1, junk_entry),
    Flow("junk message", 1, junk_message),
    Flow("doubled message", 2, doubled_message),
    Flow("vandal", 4, vandal),
    Flow("audit", 1, audit),
]

REMOVE_POOL = Flow("remove a pool", 12, remove_pool)
"""In some histories only: another flow in all of them would change the course of each seed."""
