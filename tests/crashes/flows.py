"""`FLOWS` lists the flows. A new flow is an entry of it."""

from __future__ import annotations

from tests.crashes.audit_flows import (
    AppendChanges,
    AuditBackfill,
    AuditEntry,
    AuditMessage,
    AuditRevive,
)
from tests.crashes.executor_flows import (
    Death,
    Heartbeat,
    InTurn,
    JobDeleted,
    OverlapSkip,
    Retry,
    Settle,
    SettleDeath,
    Succeed,
    SucceedInLambda,
    SucceedWithSecrets,
    TooLate,
    Undecodable,
)
from tests.crashes.flow import Flow
from tests.crashes.job_flows import (
    Change,
    ChangePayload,
    Delete,
    DeletePaused,
    Drain,
    EndOfPause,
    Pause,
    PauseUntil,
    Register,
    Resume,
)
from tests.crashes.lost_worker_flows import BuryLost, DieSupervised, GiveBack, HandBack, TakeOver
from tests.crashes.missed_flows import (
    CoverBefore,
    CoverLast,
    CoverLatest,
    Replace,
    ReplaceWaiting,
    SendFresh,
    SendLatest,
)
from tests.crashes.quota_flows import (
    CoverLastCounted,
    DeleteCounted,
    DeleteRunning,
    EndOfLastPause,
    Park,
    RegisterCounted,
    Revive,
    SettleCounted,
    TakeOverWithRates,
    TickOfWaiting,
    TickWithRates,
)
from tests.crashes.repeated_requests import (
    CancelManyAgain,
    CreateAgain,
    CreateKey,
    CreateManyAgain,
    CreateRefused,
    ManyAgain,
    Put,
    PutChanged,
    PutOverDeleted,
    ResumeManyAgain,
    RotateKey,
)
from tests.crashes.repeated_run_requests import (
    BackfillAgain,
    RedriveAgain,
    RunNowAgain,
    SkipNextAgain,
)
from tests.crashes.run_flows import (
    BeginBackfill,
    CancelLost,
    CancelRunning,
    CancelUnclaimed,
    CancelWaiting,
    Redrive,
    RedrivePool,
    RunNow,
    SkipNext,
    StartWaiting,
    StopBackfill,
    Unskip,
)
from tests.crashes.watcher_flows import (
    CarryAlong,
    Quarantine,
    ReleaseLease,
    RemovedPool,
    Straggler,
    TakeLease,
    Tick,
    TickOfBackfill,
    TickOfManyBuckets,
    TickOfMoved,
    TickOfRetry,
)

FLOWS: list[Flow] = [
    AppendChanges(),
    *(Register(), Change(), ChangePayload(), Pause(), Drain(), Resume(), Delete(), DeletePaused()),
    *(CancelUnclaimed(), CancelWaiting(), CancelLost(), CancelRunning(), Redrive(), RedrivePool()),
    StartWaiting(),
    *(RunNow(), SkipNext(), Unskip(), PauseUntil(), EndOfPause()),
    *(BeginBackfill(), StopBackfill(), TickOfBackfill()),
    *(Tick(), TickOfManyBuckets(), TickOfMoved(), TickOfRetry(), TakeLease(), ReleaseLease()),
    *(SendLatest(), SendFresh()),
    *(CoverLatest(), CoverBefore(), CoverLast(), Quarantine(), Straggler(), CarryAlong()),
    RemovedPool(),
    *(Replace(), ReplaceWaiting()),
    *(Succeed(), SucceedInLambda(), InTurn(), SucceedWithSecrets(), Heartbeat(), Retry()),
    *(Death(), Settle(), SettleDeath()),
    *(GiveBack(), DieSupervised()),
    *(HandBack(), TakeOver(), BuryLost(), OverlapSkip(), TooLate(), JobDeleted(), Undecodable()),
    *(AuditEntry(), AuditBackfill(), AuditMessage(), AuditRevive()),
    *(RegisterCounted(), DeleteCounted(), DeleteRunning(), SettleCounted(), CoverLastCounted()),
    *(Revive(), EndOfLastPause(), TickWithRates(), TickOfWaiting(), TakeOverWithRates(), Park()),
    *(CreateAgain(), CreateRefused(), CreateManyAgain(), RunNowAgain(), BackfillAgain()),
    *(RedriveAgain(), SkipNextAgain()),
    *(ManyAgain(), ResumeManyAgain(), CancelManyAgain()),
    *(Put(), PutChanged(), PutOverDeleted(), CreateKey(), RotateKey()),
]
