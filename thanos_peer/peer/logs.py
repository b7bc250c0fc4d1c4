"""How a peer speaks: lines for people, or JSON lines for machines."""

import json
import logging
import sys
import time

from thanos_peer.block import AgentId

LOG_LEVELS = ("debug", "info", "warning", "error")


class _JsonFormatter(logging.Formatter):
    def __init__(self, agent: AgentId) -> None:
        super().__init__()
        self._agent = agent

    def format(self, record: logging.LogRecord) -> str:
        when = time.strftime("%Y-%m-%dT%H:%M:%S", time.gmtime(record.created))
        return json.dumps(
            {
                "time": f"{when}.{int(record.msecs):03}Z",
                "level": record.levelname.lower(),
                "peer": self._agent,
                "message": record.getMessage(),
            }
        )


def set_up_logging(agent: AgentId, *, level: str, as_json: bool) -> None:
    """Log to stderr."""
    handler = logging.StreamHandler(sys.stderr)
    human = logging.Formatter(f"%(asctime)s peer {agent} %(levelname)s: %(message)s", "%H:%M:%S")
    handler.setFormatter(_JsonFormatter(agent) if as_json else human)
    logger = logging.getLogger("thanos_peer")
    logger.handlers[:] = [handler]
    logger.setLevel(level.upper())
    logger.propagate = False
