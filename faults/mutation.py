"""Files and values with something wrong in them: bytes, lines, tokens, values of JSON, wav files.

Conventions: all changes come from the given random generator, so that a case can be made again.
"""

import copy
import json
import random
import re
import struct
from typing import Any

import numpy as np

# Numbers and texts that readers forget.
NUMBERS: tuple[Any, ...] = (
    *(0, -1, 1, 2, 3, 7, 255, 65535, 65536, 2**31 - 1, 2**31, 2**32, 2**63 - 1, 2**63, 2**64),
    *(10**6, 10**9, 10**12, 10**30, -(10**30), 0.5, -0.5, 1e-9, 1e-300, 1e9, 1e30, 1e300, -1e300),
    *(float("inf"), float("-inf"), float("nan"), 0.1 + 0.2),
)
TEXTS = (
    *(
        "",
        " ",
        "x",
        "dog",
        "dog,dog",
        "a\tb",
        "a\nb",
        "\x00",
        "\x1b[2J\x1b[31m",
        "\u202e",
        "\ud800",
    ),
    *(
        "../../../etc/passwd",
        "/dev/zero",
        "é" * 40,
        "x" * 3000,
        "'",
        '"',
        "%s%n",
        "{}",
        "nan",
        "1e999",
    ),
    *("9" * 400, "-0", "0x10", "1_000", "true", "null", "[" * 50),
)
LONGEST = 1 << 20  # characters of a text, or of a list as JSON
SMALL: tuple[Any, ...] = (*(None, True, False), [], {}, [[]], {"": 0}, [None], ["x"], [0] * 20)


def odd_value(rng: random.Random) -> Any:
    """Return a number, text or structure that a reader may not expect."""
    return copy.deepcopy(rng.choice(rng.choice((NUMBERS, TEXTS, SMALL))))


def change_bytes(rng: random.Random, content: bytes) -> bytes:
    """Return a content with one to four changes: bits, bytes, pieces cut, doubled or inserted."""
    changed = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at = rng.randrange(len(changed) + 1)
        size = rng.choice((1, 1, 2, 4, 16, 256))
        kind = rng.randrange(7)
        if kind == 0 and changed:
            changed[at % len(changed)] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[at : at + size] = rng.randbytes(size)
        elif kind == 2:
            del changed[at : at + size]
        elif kind == 3:
            changed[at:at] = changed[at : at + size]
        elif kind == 4:
            changed[at : at + 4] = rng.choice(
                (b"\xff\xff\xff\xff", b"\0\0\0\0", b"\xff\xff\xff\x7f")
            )
        elif kind == 5:
            changed[at:at] = rng.choice((b"\0", b"\n", b"\t", b'"', b"\xff\xfe", b"[" * 64))
        else:
            del changed[at:]
    return bytes(changed)


def change_text(rng: random.Random, text: str) -> str:
    """Return a text with one to three changed tokens or lines: its grammar mostly stays."""
    for _ in range(rng.randint(1, 3)):
        tokens = re.split(r"([\t\n,;:=\[\]{}\" ])", text)
        at = rng.randrange(len(tokens))
        kind = rng.randrange(5)
        if kind == 0:
            tokens[at] = str(odd_value(rng))
        elif kind == 1:
            del tokens[at]
        elif kind == 2:
            tokens.insert(at, rng.choice((*"\t\n,;:=[]{}\"'#", "\r")))
        elif kind == 3:
            n_most = LONGEST // max(1, len(tokens[at])) + 1
            tokens[at] *= min(rng.choice((2, 50, 2000)), n_most)
        else:
            other = rng.randrange(len(tokens))
            tokens[at], tokens[other] = tokens[other], tokens[at]
        text = "".join(tokens)[:LONGEST]
    return text


def change_values(rng: random.Random, values: Any) -> Any:
    """Return plain values, some of them replaced, removed, renamed, added or repeated."""
    top = [copy.deepcopy(values)]
    for _ in range(rng.randint(1, 3)):
        places: list[tuple[Any, Any]] = [(top, 0)]
        for parent, key in places:  # grows while it is walked
            own = parent[key]
            if isinstance(own, dict):
                places += [(own, name) for name in own]
            elif isinstance(own, list):
                places += [(own, number) for number in range(min(len(own), 30))]
        parent, key = rng.choice(places)
        own, kind = parent[key], rng.randrange(6)
        if kind == 0 and parent is not top:
            del parent[key]
        elif kind == 1 and isinstance(own, list) and own:
            n_most = LONGEST // len(json.dumps(own)) + 1
            parent[key] = own * min(rng.choice((0, 2, 1000)), n_most)
        elif kind == 2 and isinstance(own, dict):
            own[str(odd_value(rng))] = odd_value(rng)
        elif kind == 3 and isinstance(parent, dict):
            parent[str(odd_value(rng))] = parent.pop(key)
        elif kind == 4 and isinstance(own, int | float) and not isinstance(own, bool):
            parent[key] = rng.choice((own + 1, own - 1, -own, own * 10**6, str(own), [own]))
        else:
            parent[key] = odd_value(rng)
    return top[0]


def change_json(rng: random.Random, text: str) -> str:
    """Return a JSON text with changed values; at times with too many levels."""
    if rng.randrange(200) == 0:
        return "[" * 200_000
    return json.dumps(change_values(rng, json.loads(text)))


def odd_wav(rng: random.Random) -> bytes:
    """Return a wav file whose header or samples are wrong."""
    rate = rng.choice((0, 1, 99, 100, 8000, 44100, 192_000, 10**7, 10**7 + 1, 2**31 - 1, 2**32 - 1))
    channels = rng.choice((0, 1, 2, 3, 64, 256, 1024, 65535))
    kind, bits = rng.choice(((1, 8), (1, 16), (1, 24), (1, 32), (3, 32), (3, 64), (7, 8), (85, 0)))
    n_bytes = rng.choice((0, 1, 100, 4096, 50_000))
    align = rng.choice((channels * bits // 8, 0, 1, 65535)) & 0xFFFF
    odd = [1e20, -1e30, float("nan"), float("inf"), 1e-40, 0.5]
    data = (
        np.array([rng.choice(odd) for _ in range(64)], "f4" if bits == 32 else "f8").tobytes()
        if kind == 3
        else rng.randbytes(n_bytes)
    )
    per_second = rng.choice((rate * align, 0)) & 0xFFFFFFFF
    form = struct.pack("<HHIIHH", kind, channels, rate, per_second, align, bits)
    claimed = rng.choice((len(data), 0, 2**31 - 1, 2**32 - 1))
    body = b"WAVEfmt " + struct.pack("<I", len(form)) + form
    body += rng.choice((b"", b"LIST\xff\xff\xff\x7f", b"fact\x04\0\0\0\xff\xff\xff\xff"))
    body += b"data" + struct.pack("<I", claimed) + data
    return b"RIFF" + struct.pack("<I", rng.choice((len(body), 0, 2**32 - 1))) + body
