"""The loadings that a peer ends with: written for people and programs, read back, and applied to new samples."""

from thanos_peer.loadings.files import write_loadings
from thanos_peer.loadings.findings import Findings
from thanos_peer.loadings.result import Result, load_result
from thanos_peer.loadings.transform import transform_file

__all__ = ["Findings", "Result", "load_result", "transform_file", "write_loadings"]
