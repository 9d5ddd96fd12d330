"""Ports: the interfaces through which use cases reach stores, queues and processes. Each docstring
is the contract of every adapter and fake; the contract tests check it.

Every method can raise `UnavailableError`: the service rejected the request or did not answer. The
request may or may not have taken effect; repeating it is safe.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from datetime import date, datetime, timedelta
from enum import Enum
from typing import Generic, Protocol, TypeVar

from nextfire.domain.audit import Audit
from nextfire.domain.chain import Batch
from nextfire.domain.due import BrokenEntry, DueEntry, Slot, StoredEntry
from nextfire.domain.events import Event
from nextfire.domain.ids import JobKey, RunFolder, RunKey
from nextfire.domain.job import Job, ParameterReference, SecretReference
from nextfire.domain.keys import ApiKey
from nextfire.domain.log import Stream
from nextfire.domain.masking import Masker
from nextfire.domain.message import RunMessage
from nextfire.domain.request_limits import RequestLimit, Taken
from nextfire.domain.run import Run, Value
from nextfire.domain.script import (
    FetchedScript,
    ScriptKey,
    ScriptSource,
    ScriptVersion,
    StoredScript,
    Upload,
)

T = TypeVar("T")


class Clock(Protocol):
    """The wall clock. Injected, so that tests can move it."""

    def now(self) -> datetime:
        """The current instant: aware, in UTC."""

    def sleep(self, duration: timedelta) -> None:
        """Sleep for *duration*."""


@dataclass(frozen=True, slots=True)
class Unreadable:
    """A stored item of a listing that does not decode. `identity`: its sort key."""

    identity: str
    problem: str


@dataclass(frozen=True, slots=True)
class Page(Generic[T]):
    """One page of a listing. `cursor`: opaque; None on the last page. `unreadable`: items in the
    same range that do not decode.
    """

    items: Sequence[T]
    cursor: str | None
    unreadable: Sequence[Unreadable] = ()


@dataclass(frozen=True, slots=True)
class Scan:
    """One page of all jobs. `last`: the position to continue after; None at the end. `unreadable`:
    jobs that do not decode, with the error.
    """

    jobs: Sequence[Job]
    unreadable: Sequence[tuple[JobKey, str]]
    last: JobKey | None


class JobStore(Protocol):
    """Stores jobs. A job and its due entry are written in one transaction."""

    def create(
        self,
        job: Job,
        first: DueEntry | None,
        now: datetime,
        *,
        former: Job | None = None,
        most: int | None = None,
    ) -> Job | None:
        """Store *job* and its due entry *first*, if the id is free or belongs to *former*, which
        is CANCELLED. If a job with the same `uid` is already stored, nothing is written. If *job*
        is `counted`, it counts toward *most*, the tenant's quota.

        Returns:
            None if stored; else the job that has the id, in any state. Its `uid` is that of *job*
            if this call repeats an earlier one.

        Raises:
            QuotaUsedUpError: The tenant already has *most* counted jobs.
        """

    def update(
        self,
        job: Job,
        entry: DueEntry | None,
        now: datetime,
        *,
        counts: int = 0,
        most: int | None = None,
    ) -> bool:
        """Replace revision `job.revision - 1` with *job* and store *entry*. Returns False if the
        job has another revision. *counts*: 1 if *job* starts to count toward the quota *most*, -1
        if it stops counting.

        Raises:
            QuotaUsedUpError: The tenant already has *most* counted jobs.
        """

    def get(self, key: JobKey) -> Job | None:
        """Return the job, by a consistent read; None if it does not exist.

        Raises:
            UndecodableError: The stored item is not a valid job.
        """

    def get_many(
        self, keys: Collection[JobKey], *, consistent: bool = False
    ) -> Mapping[JobKey, Job | Exception]:
        """Return the jobs among *keys*, without payloads. A job that does not decode maps to its
        error.

        A key can be missing because the job does not exist or because it could not be read this
        time; `get` distinguishes the two.
        """

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[Job]:
        """Return *tenant*'s jobs by id, including cancelled ones. *limit*: page size, ≥ 1.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """

    def ids(self, tenant: str, *, after: str | None, limit: int) -> Sequence[str]:
        """Return up to *limit* (≥ 1) ids of *tenant*'s jobs after *after*, in order, including
        cancelled and undecodable jobs. Fewer than *limit* ids: the end is reached.
        """

    def complete(self, job: Job, now: datetime) -> bool:
        """Make an ACTIVE job COMPLETED, if its `uid` and `schedule_version` are unchanged. It no
        longer counts toward the quota.
        """

    def counted(self, tenant: str) -> int:
        """Return the number of *tenant*'s counted jobs, by a consistent read.

        Raises:
            UndecodableError: The stored value is not a count.
        """

    def scan(self, after: JobKey | None, *, limit: int) -> Scan:
        """Return up to *limit* (≥ 1) jobs of all tenants after the job *after*, by consistent
        reads, in an order that the store defines. *after* need not exist any longer.
        """


REQUESTS_KEPT = timedelta(hours=24)
"""How long an idempotency key refers to its first request."""


@dataclass(frozen=True, slots=True)
class KeptRequest:
    """The first request with an idempotency key, received at `at`. `answer`: its response; None if
    not sent yet or too large to keep. `refused`: a part of it was reported as without
    effect.
    """

    fingerprint: str
    at: datetime
    answer: str | None
    refused: bool = False


class RequestStore(Protocol):
    """Stores requests with an idempotency key for `REQUESTS_KEPT`."""

    def begin(self, tenant: str, key: str, fingerprint: str, now: datetime) -> KeptRequest | None:
        """Store *tenant*'s request *key*, received at *now*, unless one is stored.

        Returns:
            None if stored; else the request that is stored.

        Raises:
            UndecodableError: The stored request does not decode.
        """

    def finish(self, tenant: str, key: str, began_at: datetime, answer: str) -> str:
        """Store *answer* as the response of the request that began at *began_at*, if it has none.

        Returns:
            The stored response: *answer*, or an earlier one.
        """

    def refuse(self, tenant: str, key: str, began_at: datetime) -> None:
        """Mark the request that began at *began_at* as refused, if it is still stored."""


class BucketStore(Protocol):
    """Stores named token buckets that all processes share."""

    def take(self, name: str, limit: RequestLimit, wanted: int, now: datetime) -> Taken:
        """Take up to *wanted* (≥ 1) tokens, following `request_limits.take`. Concurrent callers
        never get the same token. Takes at least one if one is available.

        Raises:
            UnavailableError: The store did not answer. Tokens may have been taken.
        """


class DueStore(Protocol):
    """Stores due entries in buckets, one per minute and shard."""

    def read(
        self,
        minute: datetime,
        shard: int,
        *,
        before: datetime | None,
        consistent: bool,
        since: datetime | None = None,
        after: Slot | None = None,
        page: int | None = None,
    ) -> Iterator[StoredEntry | BrokenEntry]:
        """Iterate over the entries of one bucket by due instant. Pages are read on demand.

        Args:
            minute: The bucket's minute.
            shard: The bucket's shard.
            before: Omit entries due at or after this; None reads the whole bucket, including keys
                that are not instants.
            consistent: See every write that was acknowledged before the call.
            since: Omit entries due before this; requires *before*.
            after: Start after this slot of the bucket, which may be empty; requires *before*,
                excludes *since*.
            page: Maximum page size; None: the store's maximum.
        """

    def occupied(self, slots: Collection[Slot]) -> set[Slot]:
        """Return those of *slots* that are occupied, by consistent reads."""

    def put(self, entries: Collection[DueEntry], now: datetime) -> set[DueEntry]:
        """Store *entries*, each in its bucket for *now*. Returns those that were stored."""

    def mark_held(self, entries: Collection[StoredEntry]) -> None:
        """Set `held` on the stored *entries*. Best effort."""

    def delete(self, slots: Collection[Slot]) -> None:
        """Delete the items in *slots*. Best effort: entries that remain are read and decided
        again.
        """

    def keep(self, entry: BrokenEntry, now: datetime) -> None:
        """Copy an undecodable entry, with its error, to a bucket that no watcher reads."""

    def quarantine(self, entry: BrokenEntry, now: datetime) -> None:
        """`keep` it, then delete it from its slot, unless another entry has replaced it."""


@dataclass(frozen=True, slots=True)
class Lease:
    """The lease of a watcher group: only its holder may dispatch.

    `epoch` grows with every change of holder. `beat` counts renewals: a standby takes over after it
    has not changed for the lease's duration, so the clocks of holder and standby need not agree.
    """

    holder: str
    epoch: int
    beat: int
    released: bool = False


class ControlStore(Protocol):
    """Stores the watchers' leases and cursors, the progress of the audit, and the runs dispatched
    per minute for tenants with a quota.
    """

    def lease(self, group: int) -> Lease | None:
        """Return the group's lease, possibly slightly stale; None if there never was one. A lease
        that does not decode is returned as one without holder that is never renewed.
        """

    def replace_lease(self, group: int, was: Lease | None, to: Lease) -> bool:
        """Replace the group's lease *was* with *to*. Of concurrent callers with the same *was*,
        exactly one succeeds.
        """

    def seed_cursors(self, shards: int, minute: datetime) -> None:
        """Create missing cursors of the shards below *shards*, at *minute*. A cursor that does not
        decode, or is an hour after *minute*, is reset to a day before the earliest of *minute* and
        the other cursors.
        """

    def cursors(self, shards: Collection[int]) -> Mapping[int, datetime]:
        """Return the cursors of *shards* that have one, by consistent reads."""

    def move_cursor(self, shard: int, minute: datetime, epoch: int) -> bool:
        """Set a cursor, unless the holder of a later epoch has already set it."""

    def take_runs(self, tenant: str, minute: datetime, wanted: int, most: int) -> int:
        """Take up to *wanted* (≥ 1) of the *most* runs that *tenant* may have in *minute*.

        Concurrent callers never take more than *most* together. If a response is lost, the runs it
        took stay unused. If a caller's clock is up to a minute ahead, other callers count in its
        minute. A stored count that does not decode counts as 0.

        Returns:
            The number of runs taken; 0 if none are left.
        """

    def taken_runs(self, tenant: str, minute: datetime) -> int:
        """Return the number of runs that *tenant* has taken in *minute*, by a consistent read. A
        stored count that does not decode counts as 0.
        """

    def audit(self) -> Audit | None:
        """Return the latest audit, by a consistent read; None if there never was one."""

    def replace_audit(self, was: Audit | None, to: Audit) -> bool:
        """Replace the latest audit *was* with *to*. Of concurrent callers with the same *was*,
        exactly one succeeds.
        """


class RunQueue(Protocol):
    """The sending side of the pools' FIFO queues."""

    def send(self, messages: Sequence[tuple[str, RunMessage]]) -> set[int]:
        """Send each message to its pool's queue, deduplicated by run, dispatch and message group.

        Returns:
            The indexes of the accepted messages. A pool that does not exist accepts none.
        """

    def backlog(self, pool: str) -> int:
        """Approximate number of messages in *pool*'s queue, including those in flight; 0 if the
        queue does not exist.
        """


class Delivery(Protocol):
    """One received message."""

    body: str

    @property
    def token(self) -> str:
        """Identifies claims made for this receive of the message. Each receive has a new one."""

    def hide(self, duration: timedelta) -> None:
        """Hide the message from other consumers for *duration* (0 … 12 h) from now. No effect if
        the receipt has expired.
        """


class FifoDelivery(Delivery, Protocol):
    """One received message of a FIFO queue. `group`: its message group, within which messages are
    delivered in order.
    """

    message_id: str
    group: str


D = TypeVar("D", bound=FifoDelivery)
D_contra = TypeVar("D_contra", bound=FifoDelivery, contravariant=True)


class Inbox(Protocol[D]):
    """Receives and deletes the messages of one pool's queue."""

    def receive(self, most: int, *, wait: timedelta, hidden_for: timedelta) -> Sequence[D]:
        """Receive up to *most* (1 … 10) messages and hide them from other consumers for
        *hidden_for*. Waits up to *wait* (0 … 20 s) for the first one.
        """

    def acknowledge(self, deliveries: Sequence[D], /) -> Sequence[str]:
        """Delete *deliveries*, at most 10. Messages that are not deleted are redelivered.

        Returns:
            One text for each deletion that was rejected, with the reason.
        """


class Journal(Protocol[D_contra]):
    """Lists the messages that a worker holds, in storage that outlives the worker's process; see
    `ReturnHeld`. Thread-safe. Never raises: if it is full, further messages are not listed.
    """

    def hold(self, deliveries: Sequence[D_contra], /) -> None:
        """Add *deliveries*, which were received."""

    def release(self, deliveries: Sequence[D_contra], /) -> None:
        """Remove *deliveries*: they were deleted, or left in the queue."""


class ServiceClock(Protocol):
    """Compares this machine's clock with the queue service's clock."""

    def deviation(self) -> timedelta:
        """Return a lower bound of the deviation. Positive: this machine's clock is ahead; negative:
        it is behind; 0: no deviation can be shown.

        Raises:
            Exception: The service did not answer, or rejected the request.
        """


class TaskProtection(Protocol):
    """Protects this process from scale-in while it works."""

    def keep(self, *, working: bool) -> None:
        """Enable protection while *working*, and disable it otherwise. Called often, by one
        thread.
        """


class Notices(Protocol):
    """Where a loop reports errors that do not end it. Thread-safe."""

    def warn(self, what: str, why: Exception | str) -> None:
        """Report an error that needs no action: the loop retries."""

    def fail(self, what: str, why: Exception | str) -> None:
        """Report an error that an operator has to look at."""


class DeadLetters(Protocol):
    """The pool's dead-letter queue."""

    def put(self, body: str, failure: str, *, dedup: str) -> None:
        """Send *body* with its *failure*. Messages with the same *dedup* within five minutes are
        merged.
        """


@dataclass(frozen=True, slots=True)
class Claim:
    """The outcome of a conditional write of a run. `run`: the stored record. `taken`: whether this
    write took effect.
    """

    run: Run
    taken: bool


class Written(Enum):
    """The outcome of a write that depends on a job and on a run."""

    DONE = "DONE"
    CHANGED = "CHANGED"  # the job has another revision
    REFUSED = "REFUSED"  # the state of the run, or its absence, does not allow it


class RunStore(Protocol):
    """Stores runs and decides who may execute them."""

    def claim(
        self,
        message: RunMessage,
        *,
        token: str,
        worker: str,
        pool: str,
        job_revision: int,
        now: datetime,
        lease_until: datetime,
    ) -> Claim:
        """Lease the run to *worker* until *lease_until*, if it is free: absent, or PENDING, not of
        a later dispatch, and past its `not_before`.

        Of concurrent callers exactly one gets it. A repeated call with the same *token* returns the
        claim that it made.
        """

    def advance(self, was: Run, to: Run, *, lapsed: bool = False) -> Claim:
        """Replace *was* with *to*, if all these conditions hold.

        - the stored run is still RUNNING under the fence of *was*;
        - no cancel was requested, if *to* is PENDING, RUNNING (the next attempt) or DEAD;
        - the lease has not been extended, if *was* belongs to another worker and has *lapsed*.

        Does not write `cancel_requested` and `checkpoint`. A repeated call with the same *to*
        returns the record that it wrote.
        """

    def cancel(self, message: RunMessage, *, reason: str, now: datetime) -> Run:
        """Make the run CANCELLED, if it is absent or PENDING. An existing record keeps its dispatch
        number: *message* may be an earlier dispatch. Returns the stored record.
        """

    def extend(self, run: Run, *, lease_until: datetime) -> Run | None:
        """Set the end of the lease: later, for the worker that holds it; in the past, for a worker
        that is known to be dead. Returns the stored record; None if the lease was lost.
        """

    def peek(self, key: RunKey) -> Run | None:
        """Return the run, by an eventually consistent read.

        Raises:
            UndecodableError: The stored item is not a valid run.
        """

    def save(self, run: Run, checkpoint: Value) -> Run | None:
        """Store *checkpoint* in the run. Returns the stored record; None if the lease was lost."""

    def mark_death_published(self, run: Run) -> None:
        """Record that the death of the DEAD *run* was published, unless it has been redriven."""

    def redrive(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        """Replace a DEAD run with *run*, made by `Run.redriven`, and store the due entry of its
        dispatch, in one transaction. `taken`: the stored run was DEAD and had the previous
        dispatch. A repeated call returns the record that it wrote.
        """

    def list_dead(
        self, tenant: str, *, first: datetime, last: datetime, cursor: str | None, limit: int
    ) -> Page[Run]:
        """Return *tenant*'s DEAD runs that died from *first* to *last*, both inclusive, latest
        death first, by eventually consistent reads. *limit*: page size, ≥ 1. A *cursor* may be used
        with another range.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """

    def request(self, run: Run, entry: DueEntry, now: datetime) -> Claim:
        """Store the PENDING *run* that a user requested and the due entry of its dispatch, in one
        transaction, unless a record exists. A repeated call with the same `request` returns the
        record that it wrote.
        """

    def skip(self, run: Run) -> Run:
        """Store the SKIPPED record *run*, unless a record exists. For a run that a user requested,
        replace its PENDING record instead, if it was never claimed. Returns the stored record.
        """

    def skip_next(self, run: Run, job: Job) -> Written:
        """Store the SKIPPED record *run*, unless a record exists, and replace revision
        `job.revision - 1` with *job*, in one transaction.
        """

    def unskip(self, run: RunKey, job: Job) -> Written:
        """Delete the record of *run*, if a user asked to skip it, and replace revision
        `job.revision - 1` with *job*, in one transaction.
        """

    def stop(self, run: Run, *, reason: str, now: datetime) -> Run:
        """Make *run* CANCELLED if it is PENDING; request its cancellation if it is RUNNING.

        Returns:
            The stored record.
        """

    def between(
        self,
        job: JobKey,
        first: str,
        last: str,
        *,
        newest_first: bool = False,
        page: int = 100,
        lenient: bool = False,
    ) -> Iterator[Run]:
        """Iterate over the job's runs with ids from *first* to *last*, both inclusive, by
        consistent reads. Pages are read on demand. *lenient*: a run that does not decode is
        returned as a DEAD run with its key and nothing else.

        Raises:
            UndecodableError: A stored item is not a valid run.
        """

    def get(self, key: RunKey) -> Run | None:
        """Return the run, by a consistent read.

        Raises:
            UndecodableError: The stored item is not a valid run.
        """

    def list(
        self,
        job: JobKey,
        *,
        cursor: str | None,
        limit: int,
        first: datetime | None = None,
        before: datetime | None = None,
    ) -> Page[Run]:
        """Return a job's runs, latest scheduled first, by an eventually consistent read. *first*
        and *before*, given together, select the runs scheduled at or after *first* and before
        *before*; a *cursor* may be used with another range. *limit*: page size, ≥ 1; a page may
        have fewer runs although more follow.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """


class ScriptStore(Protocol):
    """Reads uploaded scripts."""

    def fetch(self, source: ScriptSource) -> FetchedScript:
        """Return the script at *source*. For a pinned script: exactly the bytes with that digest,
        as long as a version that has them exists.

        Raises:
            NotFoundError: The script does not exist.
            InvalidInputError: The executor may not read it, or no version has the digest.
        """


class ScriptShelf(Protocol):
    """Uploads and lists the scripts of tenants, with their versions."""

    def upload(
        self,
        key: ScriptKey,
        *,
        size: int,
        sha256: bytes,
        signature: str | None,
        now: datetime,
        life: timedelta,
    ) -> Upload:
        """Return a URL that accepts a PUT of exactly *size* bytes with the digest *sha256*, as the
        script *key*, until *now* + *life*. *signature*: stored with the object.
        """

    def list(
        self, tenant: str, *, pool: str | None, cursor: str | None, limit: int
    ) -> Page[StoredScript]:
        """Return *tenant*'s scripts, or those of one pool, by pool and name. *limit*: page size,
        ≥ 1; a page may have fewer although more follow, because objects that no handler can name
        are left out.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """

    def versions(self, key: ScriptKey, *, cursor: str | None, limit: int) -> Page[ScriptVersion]:
        """Return the versions of the script *key*, newest first. *limit*: page size, ≥ 1.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """


class RunFiles(Protocol):
    """Stores data that is too large for a run's record: logs, results, checkpoints."""

    def put(self, folder: RunFolder, name: str, data: bytes) -> None:
        """Store *data* as the file *name* of *folder*, replacing an existing one."""

    def get(self, folder: RunFolder, name: str) -> bytes | None:
        """Return the file *name* of *folder*; None if it does not exist."""


class Events(Protocol):
    """The stack's event bus."""

    def put(self, event: Event) -> None:
        """Publish *event*."""


class KeyStore(Protocol):
    """Stores API keys: hashes, never secrets."""

    def create(self, key: ApiKey) -> bool:
        """Store *key*. Returns False if the tenant already has a key with its id."""

    def get(self, tenant: str, key_id: str) -> ApiKey | None:
        """Return the key, by a consistent read; None if it does not exist.

        Raises:
            UndecodableError: The stored item is not a valid key.
        """

    def list(self, tenant: str, *, cursor: str | None, limit: int) -> Page[ApiKey]:
        """Return *tenant*'s keys by id, including expired and revoked ones, by consistent reads.
        *limit*: page size, ≥ 1.

        Raises:
            InvalidInputError: Invalid *cursor*.
        """

    def revoke(self, tenant: str, key_id: str, now: datetime) -> ApiKey | None:
        """Revoke the key from *now* on. A key that is already revoked does not change.

        Returns:
            The stored key; None if it does not exist.
        """

    def end(self, tenant: str, key_id: str, at: datetime) -> ApiKey | None:
        """Set the key to expire at *at*, unless it expires earlier.

        Returns:
            The stored key; None if it does not exist.
        """

    def note_use(self, tenant: str, key_id: str, day: date) -> None:
        """Record that the key was last used on *day*, unless a later day is recorded or the key
        does not exist.
        """


class Secrets(Protocol):
    """Reads the secrets and parameters of one pool."""

    def resolve(self, tenant: str, reference: SecretReference | ParameterReference) -> str:
        """Return the value of *tenant*'s secret or parameter, at most a minute old.

        Raises:
            NotFoundError: It does not exist.
            InvalidInputError: The executor may not read it, or it does not have the key.
        """


class JobRole(Protocol):
    """Lends the job role of a pool to its scripts."""

    def lent(self, job: JobKey, masker: Masker) -> AbstractContextManager[Mapping[str, str]]:
        """Context manager: yields environment variables through which a script of *job* gets the
        role's credentials, renewed until the context ends. No credentials are served afterwards.

        The token and all credentials are added to *masker* before the script can get them.

        Raises:
            InvalidInputError: The executor may not assume the role.
        """


class Verdict(Enum):
    """The answer of a script's supervisor to the runner."""

    GO_ON = "GO_ON"
    CANCEL = "CANCEL"
    HAND_BACK = "HAND_BACK"
    LEASE_LOST = "LEASE_LOST"


class Supervisor(Protocol):
    """Receives reports of a runner while it runs a script, in the thread that called `run`.

    An exception that it raises ends the script and is raised by `run`.
    """

    def ask(self) -> Verdict:
        """Whether the script may continue. Called several times a second."""

    def output(self, stream: Stream, data: bytes) -> None:
        """The script printed *data*: a chunk of any length, in order within its stream."""

    def checkpoint(self) -> bytes | None:
        """Return the latest checkpoint of this or an earlier attempt, as JSON, or None."""

    def save(self, checkpoint: bytes) -> str | None:
        """Store the JSON *checkpoint*. Returns None if stored, else the reason."""


@dataclass(frozen=True, slots=True)
class ScriptCall:
    """A script to run.

    `name`: its file name, ending in ``.py`` or ``.zip``. `payload`: JSON, for standard input.
    `environment`: variables in addition to those that the runner sets for every script. `timeout`:
    measured from the start of the script, or from the unpacking of its archive. `tenant`: the owner
    of the packages it may use. `masker`: masks the secrets in `environment`.
    """

    name: str
    source: bytes
    payload: str
    timeout: timedelta
    tenant: str
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)
    masker: Masker = field(default_factory=Masker, compare=False)


@dataclass(frozen=True, slots=True)
class ScriptExit:
    """How a script ended. `exit_code` is negative for a signal; None if it never started.

    `timed_out`, or a `stopped` other than GO_ON: the runner ended it. `result`: the last result
    that it set, as JSON. `error`: why it did not start; `permanent`: a retry would fail, too.
    """

    exit_code: int | None
    stdout: str
    stderr: str
    timed_out: bool = False
    stopped: Verdict = Verdict.GO_ON
    result: bytes | None = None
    error: str | None = None
    permanent: bool = False


class ScriptRunner(Protocol):
    """Runs a script in a child process."""

    def run(self, call: ScriptCall, supervisor: Supervisor) -> ScriptExit:
        """Run *call* until it exits, its timeout passes, or *supervisor* ends it.

        When it returns, the script and every process that it started have ended, and its folder is
        removed, or being removed if that takes long. `ScriptExit.stdout` and `stderr` are truncated
        at the runner's limit, with a notice; *supervisor* gets the whole output.

        The output, including what *supervisor* gets, and the result are masked by `call.masker`.
        Checkpoints are not: the next attempt reads them.
        """


class AuditLog(Protocol):
    """Stores the audit chain; see `nextfire.domain.chain`."""

    def last(self) -> Batch | None:
        """Return the newest batch, or one that was the newest recently; None: the log is empty.

        Raises:
            UnavailableError: The store did not answer.
            BrokenChainError: The batch does not decode.
        """

    def ids_since(self, last: Batch | None, since: datetime) -> Collection[str]:
        """Return the ids of events in *last* and earlier batches that were written at or after
        *since*. Raises the same errors as `last`.
        """

    def append(self, batch: Batch) -> bool:
        """Store *batch*, unless a batch with its number exists. Of concurrent writers one succeeds.

        Returns:
            Whether it was stored. If not, `last` reads the newest batch again.

        Raises:
            UnavailableError: The store did not answer. The batch may be stored.
        """
