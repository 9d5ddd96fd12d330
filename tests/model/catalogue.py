"""The models and their sizes, the broken protocols with the property that each must violate, and
what is known to be open or not needed.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from tests.model import dispatch, dispatch_state, join, lease, run_state
from tests.model import timed_join as timed
from tests.model.dispatch import dispatch as a_dispatch
from tests.model.explore import STUCK, Model
from tests.model.join import join as a_join
from tests.model.lease import lease as a_lease
from tests.model.run import run as a_run
from tests.model.timed_join import timed_join

SMALL: dict[str, Model[Any]] = {
    "lease": a_lease(slow=4, crashes=0, ends=0),
    "lease, a death": a_lease(slow=1),
    "dispatch, an outage": a_dispatch(occurrences=2, lost=0, windows=0),
    "run, slow workers": a_run(slow=2),
    "run, a cancel": a_run(cancels=1),
    "run, a hand-back": a_run(hand_backs=1, cancels=1, lost=0),
    "run, a redrive": a_run(redrives=1, lost=0, slow=0, crashes=2),
    "run, a start before its retry": a_run(starts=1, lost=0, slow=0, crashes=2),
    "join, a crash": a_join(items=2, crashes=1, doubles=0),
    "time and parents": timed_join(crashes=0),
    "join, a redrive and a crash": a_join(crashes=1, doubles=0, redrives=1, begun=True),
}
"""Explored in seconds."""

LARGE: dict[str, Model[Any]] = {
    "lease, large": a_lease(),
    "dispatch, a row of missed occurrences": a_dispatch(crashes=0, lost=0, windows=0),
    "dispatch, three occurrences": a_dispatch(outages=0, windows=0, lost=0),
    "lease, three watchers": a_lease(watchers=3, slow=1, lost=0, ends=0),
    "dispatch, lost answers": a_dispatch(outages=0),
    "dispatch, a message that is dropped": a_dispatch(occurrences=2, lost=0),
    "dispatch, all faults": a_dispatch(occurrences=2),
    "dispatch, three occurrences and an outage": a_dispatch(lost=0, windows=0),
    "run, a cancel, slow workers": a_run(cancels=1, slow=2),
    "run, a redrive, slow workers": a_run(redrives=1, lost=0),
    "run, a cancel and a redrive": a_run(cancels=1, redrives=1, lost=0, slow=0),
    "run, a cancel and a start": a_run(cancels=1, starts=1, lost=0, slow=0),
    "run, the window passes": a_run(windows=1, slow=2),
    "run, crashes": a_run(crashes=3, slow=2),
    "join, crashes": a_join(items=2),
    "join, a redrive": a_join(crashes=1, doubles=0, redrives=1),
    "time and parents, a crash": timed_join(),
    "time and parents, a crash and a redrive": timed_join(redrives=1),
    "time and parents, doubled messages": timed_join(doubles=1),
}
"""Explored in minutes."""


@dataclass(frozen=True)
class Broken:
    """A protocol with one defect, and the property that the defect violates."""

    model: Model[Any]
    property: str


ONE_HOLDER = "at most one watcher holds the lease within its life"
EPOCHS = "the epoch increases with each holder"
ENTRY_GOES = dispatch.ENTRY_GOES
ONE_RECORD = "an occurrence is covered by at most one record"
ON_RECORD = "records do not change"
NO_RESTART = "only a redrive restarts an ended run"
ONE_LEASE = "an unexpired lease has one holder"
FENCED = "a worker that lost the run records nothing"
NO_ATTEMPT = "no attempt begins after an answered cancel"
ONE_MEANING = "a dispatch number has one meaning"
PUBLISHED = "a death marked as published was published"
AFTER_BOTH = "a run starts only after both parents succeeded"
JOIN_RECORD = "the record of a joined run changes only if a parent was redriven"
SENT = "a complete join is sent without waiting for its end"


def _crashing_join(protocol: join.Protocol, *, items: int = 1) -> Model[Any]:
    return a_join(protocol, items=items, crashes=1, doubles=0)


BROKEN: dict[str, Broken] = {
    "a lease taken over by comparing clocks": Broken(
        a_lease(lease.Protocol(compares_clocks=True, ahead=(0, 4, 0))), ONE_HOLDER
    ),
    "a lease taken over without a condition on the item that was read": Broken(
        a_lease(lease.Protocol(takes_what_it_saw=False)), EPOCHS
    ),
    "a renewal counted from its last attempt": Broken(
        a_lease(lease.Protocol(counts_from_first_try=False), slow=1, ends=0), ONE_HOLDER
    ),
    "a successor stored before its message was accepted": Broken(
        a_dispatch(
            dispatch_state.Protocol(accepted_before_successor=False),
            occurrences=2,
            lost=0,
            windows=0,
        ),
        ENTRY_GOES,
    ),
    "an entry deleted before its successor is stored": Broken(
        a_dispatch(dispatch_state.Protocol(successor_before_delete=False)), ENTRY_GOES
    ),
    "an entry deleted before its message is accepted": Broken(
        a_dispatch(dispatch_state.Protocol(accepted_before_delete=False)), ENTRY_GOES
    ),
    "a range record written over a run's record": Broken(
        a_dispatch(dispatch_state.Protocol(covers_only_without_record=False), alone=False),
        ON_RECORD,
    ),
    "an executor that does not check for ranges": Broken(
        a_dispatch(dispatch_state.Protocol(looks_for_ranges=False), occurrences=2), ONE_RECORD
    ),
    "an executor that claims its run before it records its row": Broken(
        a_dispatch(dispatch_state.Protocol(row_before_claim=False), lost=0, windows=0), STUCK
    ),
    "an executor that writes its row over a run's record": Broken(
        a_dispatch(dispatch_state.Protocol(row_only_without_record=False), alone=False), ON_RECORD
    ),
    "a row recorded by the first delivery only": Broken(
        a_dispatch(dispatch_state.Protocol(row_by_every_delivery=False), lost=0, windows=0), STUCK
    ),
    "a claim without a condition on the state": Broken(
        a_run(run_state.Protocol(claims_only_what_is_free=False)).without(ONE_LEASE), NO_RESTART
    ),
    "a claim of a RUNNING run under a live lease": Broken(
        a_run(run_state.Protocol(claims_only_what_is_free=False)), ONE_LEASE
    ),
    "an outcome written without a condition on the fence": Broken(
        a_run(run_state.Protocol(records_under_its_fence=False), slow=2), FENCED
    ),
    "a run taken over although its lease was extended": Broken(
        a_run(run_state.Protocol(takes_the_lease_it_saw=False), slow=2), ONE_LEASE
    ),
    "a message acknowledged before the record": Broken(
        a_run(run_state.Protocol(acknowledges_last=False)), STUCK
    ),
    "a retry recorded before its entry is stored": Broken(
        a_run(run_state.Protocol(entry_before_retry=False), slow=0, lost=0), STUCK
    ),
    "a death marked as published before the dead letter": Broken(
        a_run(run_state.Protocol(publishes_before_mark=False)), PUBLISHED
    ),
    "a cancel checked neither before PENDING nor at the claim": Broken(
        a_run(run_state.Protocol(retries_no_cancelled=False, claims_no_cancelled=False), cancels=1),
        NO_ATTEMPT,
    ),
    "a cancel not checked when a lost run is taken over": Broken(
        a_run(run_state.Protocol(takes_over_no_cancelled=False), cancels=1), NO_ATTEMPT
    ),
    "a redrive with the next dispatch number": Broken(
        a_run(run_state.Protocol(redrive_adds=1), redrives=1, slow=0, lost=0), ONE_MEANING
    ),
    "a join whose first mark comes before its end is stored": Broken(
        _crashing_join(join.Protocol(entry_before_mark=False)), STUCK
    ),
    "a parent acknowledged before it is handed over": Broken(
        _crashing_join(join.Protocol(acknowledges_last=False)), STUCK
    ),
    "the other items of a join read before the mark is added": Broken(
        _crashing_join(join.Protocol(marks_before_reading_others=False), items=2), SENT
    ),
    "a mark written over those of other parents": Broken(
        _crashing_join(join.Protocol(adds_marks=False)), SENT
    ),
    "a skip written over a record": Broken(
        _crashing_join(join.Protocol(skips_only_without_record=False)), JOIN_RECORD
    ),
    "a skip that is not followed by another look at the parents": Broken(
        a_join(
            join.Protocol(looks_again_after_skip=False),
            crashes=0,
            doubles=0,
            redrives=1,
            begun=True,
        ),
        STUCK,
    ),
    "a parent that reopens what the end of its join skipped": Broken(
        _crashing_join(join.Protocol(reopens_only_by_rule=False)), JOIN_RECORD
    ),
    "the end of a join that starts its run": Broken(
        _crashing_join(join.Protocol(end_never_starts=False)), AFTER_BOTH
    ),
    "a time that is noted after the parents were read": Broken(
        timed_join(timed.Protocol(notes_time_before_reading=False), crashes=0), SENT
    ),
    "a time that is noted before the end of its join is stored": Broken(
        timed_join(timed.Protocol(entry_before_mark=False)), STUCK
    ),
    "a parent whose executor does not look for the time": Broken(
        timed_join(timed.Protocol(looks_when_a_parent_ended=False), crashes=0), SENT
    ),
    "a parent that trusts the note of who is left": Broken(
        timed_join(timed.Protocol(reads_who_is_left=False), crashes=0), SENT
    ),
    "a run reopened without its dispatch": Broken(
        a_join(
            join.Protocol(reopens_with_dispatch=False),
            crashes=1,
            doubles=0,
            redrives=1,
            begun=True,
        ),
        STUCK,
    ),
}

SWALLOWED = Broken(
    a_run(run_state.Protocol(redrive_adds=1), redrives=1, slow=0, lost=0).without(ONE_MEANING),
    STUCK,
)
"""The effect of a number with two meanings: the queue drops a redrive as a repetition."""

OPEN: dict[str, Broken] = {
    "two watchers, or a watcher and an executor, read the same records concurrently": Broken(
        a_dispatch(occurrences=2, lost=0, windows=0, alone=False), ONE_RECORD
    ),
}
"""Violations that the current protocol does not exclude; see `dispatch`."""

NOT_NEEDED: dict[str, Model[Any]] = {
    "a cancel checked before PENDING, if the claim checks it": a_run(
        run_state.Protocol(retries_no_cancelled=False), cancels=1
    ),
    "a cancel checked by the claim, if it is checked before PENDING": a_run(
        run_state.Protocol(claims_no_cancelled=False), cancels=1
    ),
}
"""Guards without which every property still holds: each is redundant or serves something that is
not a property here.
"""
