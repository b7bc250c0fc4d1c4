"""What one site of a run reveals, to whom, in which phase and under which coalition: before anything runs."""

from thanos_peer.disclosure.contents import OF_MIXING, OF_OWN_OBJECTIVES, SUMMED, exposure_facts, warnings
from thanos_peer.disclosure.page import page

__all__ = ["OF_MIXING", "OF_OWN_OBJECTIVES", "SUMMED", "exposure_facts", "page", "warnings"]
