"""`python -m thanos_peer` is `thanos-peer`."""

from thanos_peer.cli import main

main()
