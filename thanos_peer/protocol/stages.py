"""The stages of a peer's life.

    stage     what the peer does                           leads to
    RUNNING   takes its rounds                             RUNNING, LOST, SAVING, FAILING
    LOST      has no state, asks for a neighbor's X        RUNNING, FAILING, ENDED
    SAVING    writes its last checkpoint                   RUNNING, PROVING, FAILING, ENDED
    PROVING   makes sure that its address leads to it      RUNNING, STAYING, FAILING
    STAYING   has its result, stays until all have theirs  RUNNING, FAILING, ENDED
    FAILING   has failed, makes sure who it is             ENDED
    ENDED     is over

A new epoch leads from any stage before FAILING to RUNNING. What each input of a session does in each stage:

    input         RUNNING, LOST             SAVING, PROVING, STAYING     FAILING           ENDED
    start         says Hello, may step      an error of ours             an error of ours  an error of ours
    receive       heard and answered        heard and answered           heard, answered   ignored
    link_changed  noted                     noted                        noted             noted
    looked_up     noted; logs, or FAILING   noted                        noted             noted
    advance       may step; LOST: ignored   ignored                      ignored           ignored
    tick          asks, waits, saves        SAVING: logs a slow disk;    may end           ignored
                                            PROVING: STAYING;
                                            STAYING: asks, may leave
    saved         the next round may begin  the next stage may begin     noted             noted
    save_failed   FAILING                   FAILING; STAYING: logged     noted             noted
    epoch_failed  FAILING                   FAILING                      ignored           ignored
    stop          SAVING; LOST: ENDED       STAYING: ENDED; else noted   noted             ignored
    fail          FAILING                   FAILING                      ignored           ignored

A session starts in RUNNING, once; one that was done in an earlier life goes on to SAVING. A step leads to SAVING
if it was the last, and to FAILING if it fails. FAILING leads to ENDED at once, unless it is unclear which process
its address leads to.
"""

from collections.abc import Mapping
from enum import Enum
from typing import Final


class Stage(Enum):
    """What a peer does: see the table at the top."""

    RUNNING = "running"
    LOST = "lost"
    SAVING = "saving"
    PROVING = "proving"
    STAYING = "staying"
    FAILING = "failing"
    ENDED = "ended"


TRANSITIONS: Final[Mapping[Stage, frozenset[Stage]]] = {
    Stage.RUNNING: frozenset({Stage.RUNNING, Stage.LOST, Stage.SAVING, Stage.FAILING}),
    Stage.LOST: frozenset({Stage.RUNNING, Stage.FAILING, Stage.ENDED}),
    Stage.SAVING: frozenset({Stage.RUNNING, Stage.PROVING, Stage.FAILING, Stage.ENDED}),
    Stage.PROVING: frozenset({Stage.RUNNING, Stage.STAYING, Stage.FAILING}),
    Stage.STAYING: frozenset({Stage.RUNNING, Stage.FAILING, Stage.ENDED}),
    Stage.FAILING: frozenset({Stage.ENDED}),
    Stage.ENDED: frozenset(),
}
