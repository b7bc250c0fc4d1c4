"""The stages of a peer's life.

    stage     what the peer does                           leads to
    RUNNING   takes its rounds                             RUNNING, LOST, SAVING, FAILING
    LOST      has no state, asks for a neighbor's X        RUNNING, FAILING, ENDED
    SAVING    writes its last checkpoint                   RUNNING, PROVING, FAILING, ENDED
    PROVING   makes sure that its address leads to it      RUNNING, STAYING, FAILING
    STAYING   has its result, stays until all have theirs  RUNNING, FAILING, ENDED
    FAILING   has failed, makes sure who it is             ENDED
    ENDED     is over

A new epoch leads from any stage before FAILING to RUNNING. What each input does in each stage:

    input        RUNNING, LOST             SAVING, PROVING, STAYING     FAILING           ENDED
    messages     heard and answered        heard and answered           heard, answered   ignored
    tick         asks, waits, saves        asks, may leave              may end           ignored
    saved        the next round may begin  the next stage may begin     noted             ignored
    save_failed  FAILING                   FAILING; STAYING: logged     ignored           ignored
    epoch_failed FAILING                   FAILING                      ignored           ignored
    stop         SAVING; LOST: ENDED       STAYING: ENDED; else noted   noted             ignored
    fail         FAILING                   FAILING                      ignored           ignored
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
