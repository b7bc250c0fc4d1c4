"""The published frames, from the messages that stand beside them in vectors.json.

python tests/protocol/vectors.py    makes all frames again, after a change of the wire
"""

import json
from pathlib import Path

import numpy as np

from thanos_peer.algorithm.fixed_point import EXACT, FixedPoint
from thanos_peer.block import Block, StopWord, bytes_each
from thanos_peer.protocol.messages import Bye, Hello
from thanos_peer.protocol.wire import Codec

FILE = Path(__file__).parent / "vectors.json"


def numbers_of(fields):
    """The bytes of what a vector of a sum says."""
    if "total" in fields:
        form = FixedPoint.within(2 * fields["total"], fields["peers"])
        assert form.last == fields["exponent"]
        return form.encode(np.array(fields["values"]), fields["peers"])
    if "values" in fields:
        return EXACT.encode(np.array(fields["values"]), 1)
    if "integers" in fields:
        size = bytes_each(fields["kind"])
        return b"".join(int(number).to_bytes(size, "little", signed=True) for number in fields["integers"])
    if "key" in fields:
        return bytes.fromhex(fields["key"])
    return np.array(fields.get("word", []), dtype="<f8").tobytes()


def codec_of(vector):
    """The codec of the run that a vector belongs to."""
    fields = vector["message"]
    forms = [(fields["kind"], tuple(fields["shape"]))] if "shape" in fields else []
    return Codec(vector["digest"], n=vector["n"], p=vector["p"], dtype=vector["dtype"], forms=forms)


def message_of(vector):
    """What a vector says."""
    fields = vector["message"]
    if vector["kind"] != "block":
        return {"hello": Hello, "bye": Bye}[vector["kind"]](**fields)
    k, eta, fallback = fields["k"], fields["eta"], fields["fallback"]
    stop = StopWord(fields["streak"], fields["after"])
    if "shape" in fields:
        block = Block(k, numbers_of(fields), tuple(fields["shape"]), eta, stop, fallback, fields["kind"])
    else:
        block = Block.of(k, np.array(fields["X"]), np.array(fields["D"]), eta, stop, fallback)
    return block._replace(birth=fields["birth"])


def main():
    vectors = json.loads(FILE.read_text(encoding="utf-8"))
    for vector in vectors:
        vector["frame"] = codec_of(vector).encode(vector["sender"], message_of(vector)).hex()
    FILE.write_text(json.dumps(vectors, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
