"""How often an engine starts a peer again.

A peer that was killed must come back, however often; one whose file is wrong would come back for ever. Engines of
containers cannot tell the two apart by the exit code, so they get a number that a sound peer does not reach.
"""

MOST_RESTARTS = 50
# Where an engine counts per time; else until the user starts the peer by hand.
RESTART_WINDOW = "6h"
# Exit codes that a restart does not change, for engines that look at them.
LASTING = "2 3 4 5 8"
