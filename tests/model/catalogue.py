"""The models at their sizes, the broken protocols that each must show, and what is known to be
open or not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.model import dispatch, lease, run
from tests.model.dispatch import dispatch as a_dispatch
from tests.model.explore import STUCK, Model
from tests.model.lease import lease as a_lease
from tests.model.run import run as a_run

SMALL: dict[str, Model[Any]] = {
    "lease": a_lease(slow=4, crashes=0, ends=0),
    "lease, a death": a_lease(slow=1),
    "dispatch, an outage": a_dispatch(occurrences=2, lost=0, windows=0),
    "dispatch, three occurrences": a_dispatch(outages=0, windows=0, lost=0),
    "run, slow workers": a_run(slow=2),
    "run, a cancel": a_run(cancels=1),
    "run, a hand-back": a_run(hand_backs=1, cancels=1, lost=0),
    "run, a redrive": a_run(redrives=1, lost=0, slow=0, crashes=2),
}
"""Seconds."""

LARGE: dict[str, Model[Any]] = {
    "lease, large": a_lease(),
    "lease, three watchers": a_lease(watchers=3, slow=1, lost=0, ends=0),
    "dispatch, lost answers": a_dispatch(outages=0),
    "dispatch, all faults": a_dispatch(occurrences=2),
    "dispatch, three occurrences and an outage": a_dispatch(lost=0, windows=0),
    "run, a cancel, slow workers": a_run(cancels=1, slow=2),
    "run, a redrive, slow workers": a_run(redrives=1, lost=0),
    "run, a cancel and a redrive": a_run(cancels=1, redrives=1, lost=0, slow=0),
    "run, the window passes": a_run(windows=1, slow=2),
    "run, crashes": a_run(crashes=3, slow=2),
}
"""Minutes."""


@dataclass(frozen=True)
class Broken:
    """A protocol with one thing wrong, and the property that this breaks."""

    model: Model[Any]
    property: str


ONE_HOLDER = "at most one watcher holds the lease within its life"
EPOCHS = "epochs go up with each holder"
ENTRY_GOES = "an entry goes only when it was sent or covered and its successor stored"
ONE_RECORD = "an occurrence is covered by one record at most"
ON_RECORD = "what is on record stays as it is"
NO_RESTART = "what has ended starts again by a redrive only"
ONE_LEASE = "an unexpired lease has one holder"
FENCED = "who lost the run records nothing"
NO_ATTEMPT = "no attempt begins after an answered cancel"
ONE_MEANING = "a dispatch number has one meaning"
TOLD = "what is marked as told was told"

BROKEN: dict[str, Broken] = {
    "a lease taken over by comparing clocks": Broken(
        a_lease(lease.Protocol(compares_clocks=True, ahead=(0, 4, 0))), ONE_HOLDER
    ),
    "a lease taken over without condition on what was seen": Broken(
        a_lease(lease.Protocol(takes_what_it_saw=False)), EPOCHS
    ),
    "a renewal counted from its last try": Broken(
        a_lease(lease.Protocol(counts_from_first_try=False), slow=1, ends=0), ONE_HOLDER
    ),
    "an entry deleted before its successor is stored": Broken(
        a_dispatch(dispatch.Protocol(successor_before_delete=False)), ENTRY_GOES
    ),
    "an entry deleted before its message is accepted": Broken(
        a_dispatch(dispatch.Protocol(accepted_before_delete=False)), ENTRY_GOES
    ),
    "a range record put over a run's": Broken(
        a_dispatch(dispatch.Protocol(covers_only_without_record=False), alone=False), ON_RECORD
    ),
    "an executor that does not look for ranges": Broken(
        a_dispatch(dispatch.Protocol(looks_for_ranges=False), occurrences=2), ONE_RECORD
    ),
    "a claim without condition on the state": Broken(
        a_run(run.Protocol(claims_only_what_is_free=False)).without(ONE_LEASE), NO_RESTART
    ),
    "a claim of what is RUNNING under a live lease": Broken(
        a_run(run.Protocol(claims_only_what_is_free=False)), ONE_LEASE
    ),
    "an outcome written without condition on the fence": Broken(
        a_run(run.Protocol(records_under_its_fence=False), slow=2), FENCED
    ),
    "a run taken over though its lease was extended": Broken(
        a_run(run.Protocol(takes_the_lease_it_saw=False), slow=2), ONE_LEASE
    ),
    "a message acknowledged before the record": Broken(
        a_run(run.Protocol(acknowledges_last=False)), STUCK
    ),
    "a retry on record before its entry": Broken(
        a_run(run.Protocol(entry_before_retry=False), slow=0, lost=0), STUCK
    ),
    "a death marked as told before the dead letter": Broken(
        a_run(run.Protocol(tells_before_mark=False)), TOLD
    ),
    "a cancel not looked at on the way to PENDING, nor at the claim": Broken(
        a_run(run.Protocol(retries_no_cancelled=False, claims_no_cancelled=False), cancels=1),
        NO_ATTEMPT,
    ),
    "a cancel not looked at when a lost run is taken over": Broken(
        a_run(run.Protocol(takes_over_no_cancelled=False), cancels=1), NO_ATTEMPT
    ),
    "a redrive with the next number": Broken(
        a_run(run.Protocol(redrive_adds=1), redrives=1, slow=0, lost=0), ONE_MEANING
    ),
}

SWALLOWED = Broken(
    a_run(run.Protocol(redrive_adds=1), redrives=1, slow=0, lost=0).without(ONE_MEANING), STUCK
)
"""What a number with two meanings comes to: a redrive that the queue takes for a repetition."""

OPEN: dict[str, Broken] = {
    "two watchers, or a watcher and an executor, look at the same records at once": Broken(
        a_dispatch(occurrences=2, lost=0, windows=0, alone=False), ONE_RECORD
    ),
}
"""What the present protocol does not exclude; see `dispatch`."""

NOT_NEEDED: dict[str, Model[Any]] = {
    "a successor stored after its message was accepted": a_dispatch(
        dispatch.Protocol(accepted_before_successor=False), occurrences=2, lost=0, windows=0
    ),
    "a cancel looked at on the way to PENDING, where the claim looks": a_run(
        run.Protocol(retries_no_cancelled=False), cancels=1
    ),
    "a cancel looked at by the claim, where the way to PENDING does": a_run(
        run.Protocol(claims_no_cancelled=False), cancels=1
    ),
}
"""Guards without which every property still holds: each is a second one for the same, or serves
what is no property here.
"""
