"""Spectrogram -> tiles, grey PNG images of `WIDTH` columns.

Conventions: tile `index` of level `level` shows the frames from index * WIDTH * 2^level on; each of
its columns is the highest value of 2^level frames, so that short sounds stay visible from afar.
There is one row per mel, high frequencies at the top. A tile at the end is filled with 0.
"""

import struct
import zlib

import numpy as np

from earmark.web.analysis import OVERVIEW, Analysis, Grey

WIDTH = 256
MAX_LEVEL = 24  # one tile of it shows days


def tile_png(analysis: Analysis, level: int, index: int, complete: bool = True) -> bytes | None:
    """Return a tile; None if it begins after the end, or is not complete yet.

    Args:
        analysis: of the recording.
        level: 0 shows every frame, each next level half as many columns.
        index: of the tile.
        complete: whether the spectrogram is; else a tile must have all of its columns.
    """
    factor = 1 << level
    overview = factor >= OVERVIEW
    columns = analysis.spectrogram(overview)
    if overview:
        factor //= OVERVIEW
    first, stop = index * WIDTH * factor, (index + 1) * WIDTH * factor
    if first >= len(columns) or (stop > len(columns) and not complete):
        return None
    return encode_png(reduce_columns(columns[first:stop], factor))


def reduce_columns(columns: Grey, factor: int) -> Grey:
    """Return a tile (mels, WIDTH) from columns (frames, mels), the highest of every `factor`.

    >>> tile = reduce_columns(np.array([[1, 5], [3, 4], [2, 6]], np.uint8), 2)
    >>> tile.shape, tile[:, :2].tolist()
    ((2, 256), [[5, 6], [3, 2]])
    """
    starts = np.arange(0, len(columns), factor)
    reduced = np.maximum.reduceat(columns, starts, axis=0)
    tile = np.zeros((columns.shape[1], WIDTH), np.uint8)
    tile[:, : len(reduced)] = reduced.T[::-1]
    return tile


def encode_png(image: Grey) -> bytes:
    r"""Return a grey image (rows, columns) as a PNG.

    >>> encode_png(np.zeros((2, 3), np.uint8))[:8]
    b'\x89PNG\r\n\x1a\n'
    """
    height, width = image.shape
    # Each row has a filter byte in front: 0, none.
    rows = np.zeros((height, width + 1), np.uint8)
    rows[:, 1:] = image
    header = struct.pack(">IIBBBBB", width, height, 8, 0, 0, 0, 0)  # 8 bits, grey, one pass
    chunks = ((b"IHDR", header), (b"IDAT", zlib.compress(rows.tobytes(), 6)), (b"IEND", b""))
    return b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in chunks
    )
