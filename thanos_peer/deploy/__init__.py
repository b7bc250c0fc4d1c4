"""One topology, many places: what other engines and other hosts need, made from the topology file as text."""
