"""Bytes of a file -> what its header and its end tell of it, where the decoder keeps silent.

Ogg pages, the Xing header of an mp3, the sizes of a streamed wav: little of each, for `audio`.
"""

import os
import re
import zlib
from typing import BinaryIO

HEAD = 1 << 16  # bytes: room for the header of a wav, and for the largest page of an ogg


def ends_as_ogg(stream: BinaryIO, size: int) -> bool:
    """Return whether the last page of an ogg is there, in full, and says that it is the last."""
    stream.seek(max(0, size - HEAD))
    tail = stream.read(HEAD)
    page = tail.rfind(b"OggS")
    if page < 0 or len(tail) < page + 27:
        return False
    n_segments = tail[page + 26]
    segments = tail[page + 27 : page + 27 + n_segments]
    complete = page + 27 + n_segments + sum(segments) <= len(tail)
    return complete and len(segments) == n_segments and bool(tail[page + 5] & 4)


def read_xing(stream: BinaryIO, head: bytes, size: int) -> tuple[int, int] | None:
    """Return how many bytes an mp3 has, and how many the Xing header in its first frame promises.

    None if no such header counts the frames; a promise of 0 if it does not count the bytes.
    """
    tag = 0
    if head.startswith(b"ID3") and len(head) >= 10:  # comes first; its size has 7 bits a byte
        tag = 10 + (head[6] << 21 | head[7] << 14 | head[8] << 7 | head[9])
    stream.seek(tag)
    frame = stream.read(1500)  # the longest frame has 1441 bytes
    at = max(frame.find(b"Xing"), frame.find(b"Info"))
    if at < 0 or frame[0] != 0xFF or len(frame) < at + 16 or not frame[at + 7] & 1:
        return None
    return size - tag, int.from_bytes(frame[at + 12 : at + 16], "big") if frame[at + 7] & 2 else 0


def with_wav_size(head: bytes) -> bytes | None:
    """Return the head of a wav whose data was streamed with a size of 0, with a size that reads it.

    None if it is no such wav: what follows an empty data chunk is nothing, or a chunk by its name.
    """
    data = head.find(b"data\0\0\0\0")
    rest = head[data + 8 : data + 12]
    if not head.startswith(b"RIFF") or data < 0 or re.fullmatch(rb"|[ -~]{4}", rest):
        return None
    return head[: data + 4] + b"\xff\xff\xff\xff"


class Retold:
    """A stream that is told to begin or to last otherwise, for a decoder that believes its header.

    It has just what soundfile asks of a file object.
    """

    def __init__(self, stream: BinaryIO, head: bytes = b"", length: int | None = None) -> None:
        self._stream = stream
        self._head = head
        self._length = length
        self._at_end = False

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Move as asked, and note whether that was the question for the length."""
        self._at_end = self._length is not None and (offset, whence) == (0, os.SEEK_END)
        self._stream.seek(offset, whence)
        return self.tell()

    def tell(self) -> int:
        """Return the position, or the told length where that was the question."""
        return self._length if self._at_end and self._length else self._stream.tell()

    def read(self, count: int = -1) -> bytes:
        """Return bytes of the stream, with the told head over its own."""
        position = self._stream.tell()
        data = self._stream.read(count)
        told = self._head[position : position + len(data)]
        return told + data[len(told) :]


_REVERSED = bytes(int(f"{byte:08b}"[::-1], 2) for byte in range(256))


def with_serial(ogg: bytes, serial: int) -> bytes:
    """Return an ogg file with another serial number, which libsndfile draws at random."""
    pages = bytearray(ogg)
    page = 0
    while page < len(pages):
        n_segments = pages[page + 26]
        end = page + 27 + n_segments + sum(pages[page + 27 : page + 27 + n_segments])
        pages[page + 14 : page + 18] = serial.to_bytes(4, "little")
        pages[page + 22 : page + 26] = bytes(4)
        # Ogg's checksum (RFC 3533) is that of zip with the bits of every byte, and of the sum, in
        # reverse, and without the two complements.
        check = zlib.crc32(bytes(pages[page:end]).translate(_REVERSED), 0xFFFFFFFF) ^ 0xFFFFFFFF
        pages[page + 22 : page + 26] = check.to_bytes(4, "big").translate(_REVERSED)
        page = end
    return bytes(pages)
