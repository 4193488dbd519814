"""Frames of strangers, damaged ones, and ones made to harm: a message comes of them, or MalformedMessage."""

import copy
import random
from collections.abc import Callable
from typing import Any

import msgpack
import pytest

from edlz.services.protocol.message_types import Message
from edlz.services.protocol.messages import ANSWERS, REQUESTS, Ping
from edlz.services.transport.codec import PROTOCOL_VERSION, Codec, MalformedMessage
from tests.fuzz.arbitrary import arbitrary
from tests.fuzz.fuzzing import cases, every_case

pytestmark = pytest.mark.fuzz

FEW, FULL = 2_000, 1_000_000
SAMPLES = 400  # messages that are damaged, many times each
HEADS = (
    *(
        b"\xdd\xff\xff\xff\xff",
        b"\xdc\xff\xff",
        b"\xdf\xff\xff\xff\xff",
        b"\xdb\x7f\xff\xff\xff",
        b"\xc6\xff\xff\xff\xff",
    ),
    *(
        b"\x91" * 40,
        b"\x81\xa1a" * 40,
        b"\xc1",
        b"\xc7\x00\x01",
        b"\xd6\xff\x00\x00\x00\x00",
        b"\xc9\xff\xff\xff\xff\x05",
    ),
    *(
        b"\xcf" + b"\xff" * 8,
        b"\xd3\x80" + bytes(7),
        b"\xcb\x7f\xf8" + bytes(6),
        b"\xa2\xff\xfe",
        b"\x82\xa1a\x01\xa1a\x01",
    ),
)
ODD: tuple[Any, ...] = (
    *(
        None,
        True,
        False,
        -1,
        0,
        1,
        2**63,
        2**64 - 1,
        -(2**63),
        0.5,
        float("nan"),
        float("inf"),
        "",
        "x",
        "<f4",
        b"",
        b"\xff",
    ),
    *((), ((),), (0,) * 50, {}, {"a": {}}, {"name": 1}, (2**40, 2**40), (2**62, 2**62, 0), (-1,), "x" * 2000),
)

Frames = list[bytes]


class Peer:
    """What a codec takes, as it should be."""

    def __init__(self, expects: Any, kinds: tuple[type[Message], ...]) -> None:
        self.codec = Codec(expects)
        chance = random.Random(1)
        messages = [arbitrary(chance, chance.choice(kinds)) for _ in range(SAMPLES)]
        self.samples = [[bytes(frame) for frame in self.codec.encode(message, 7)] for message in messages]


PEERS = (Peer("requests", REQUESTS), Peer("answers", ANSWERS))


def of_random_bytes(chance: random.Random, frames: Frames) -> Frames:
    return [chance.randbytes(chance.randrange(60)) for _ in range(chance.randrange(4))]


def of_a_random_header(chance: random.Random, frames: Frames) -> Frames:
    tag, fields = chance.randrange(50), [chance.choice(ODD) for _ in range(chance.randrange(12))]
    tensors = [
        chance.choice(ODD)
        if chance.random() < 0.3
        else (chance.choice(("<f4", "<i8", "|u1")), chance.choice(ODD), 1)
        for _ in range(chance.randrange(3))
    ]
    return [msgpack.packb((PROTOCOL_VERSION, 7, (tag, *fields), tensors)), *frames[1:]]


def with_other_bytes(chance: random.Random, frames: Frames) -> Frames:
    which = 0 if chance.random() < 0.8 else chance.randrange(len(frames))
    damaged = bytearray(frames[which])
    for _ in range(chance.choice((1, 1, 1, 2, 5))):
        place = chance.randrange(len(damaged) + 1)
        kind = chance.randrange(4)
        if kind == 0:
            damaged[place : place + 1] = chance.randbytes(1)
        elif kind == 1:
            damaged[place:place] = chance.choice(HEADS)
        elif kind == 2:
            head = chance.choice(HEADS)
            damaged[place : place + len(head)] = head
        else:
            del damaged[place : place + chance.choice((1, 1, 3, 20))]
    return [*frames[:which], bytes(damaged), *frames[which + 1 :]]


def with_other_values(chance: random.Random, frames: Frames) -> Frames:
    tree = msgpack.unpackb(frames[0], use_list=True)
    for _ in range(chance.choice((1, 1, 2))):
        holder = tree
        while True:
            keys = list(holder) if isinstance(holder, dict) else range(len(holder))
            if not keys:
                break
            key = chance.choice(keys)
            if isinstance(holder[key], (list, dict)) and chance.random() < 0.8:
                holder = holder[key]
                continue
            if isinstance(holder, list) and chance.random() < 0.2:
                holder.insert(key, copy.deepcopy(chance.choice(ODD)))
            elif chance.random() < 0.2:
                del holder[key]
            else:
                holder[key] = copy.deepcopy(chance.choice(ODD))
            break
    return [msgpack.packb(tree), *frames[1:]]


def cut_short(chance: random.Random, frames: Frames) -> Frames:
    if chance.random() < 0.3:
        return frames[: chance.randrange(len(frames))]
    which = chance.randrange(len(frames))
    return [*frames[:which], frames[which][: chance.randrange(len(frames[which]) + 1)], *frames[which + 1 :]]


def in_another_order(chance: random.Random, frames: Frames) -> Frames:
    changed = list(frames)
    for _ in range(chance.choice((1, 2))):
        kind, which = chance.randrange(3), chance.randrange(len(changed))
        if kind == 0:
            chance.shuffle(changed)
        elif kind == 1:
            changed.insert(which, changed[chance.randrange(len(changed))])
        elif len(changed) > 1:
            del changed[which]
    return changed


DAMAGES: tuple[Callable[[random.Random, Frames], Frames], ...] = (
    of_random_bytes,
    of_a_random_header,
    with_other_bytes,
    with_other_bytes,
    with_other_values,
    with_other_values,
    cut_short,
    in_another_order,
)


def test_any_frames_are_a_message_or_malformed() -> None:
    taken, refused = 0, 0

    def play(chance: random.Random) -> None:
        nonlocal taken, refused
        peer = chance.choice(PEERS)
        frames = chance.choice(DAMAGES)(chance, chance.choice(peer.samples))
        try:
            request_id, message = peer.codec.decode(frames)
        except MalformedMessage as error:
            refused += 1
            assert error.message  # noqa: PT017
            assert error.help  # noqa: PT017
        else:
            taken += 1
            assert type(request_id) is int
            peer.codec.encode(message, request_id)
        if refused % 64 == 0:
            good = chance.choice(peer.samples)
            assert [bytes(frame) for frame in peer.codec.encode(*reversed(peer.codec.decode(good)))] == good

    every_case(cases(few=FEW, full=FULL), play)
    print(f"{taken} messages, {refused} malformed")
    assert refused > taken / 10


def test_the_samples_are_of_all_kinds() -> None:
    for peer, kinds in zip(PEERS, (REQUESTS, ANSWERS), strict=True):
        assert {type(peer.codec.decode(frames)[1]) for frames in peer.samples} == set(kinds)
    assert PEERS[0].codec.decode(PEERS[0].codec.encode(Ping(), 1)) == (1, Ping())
