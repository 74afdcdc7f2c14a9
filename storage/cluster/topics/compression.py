"""The compressions of entries and of metadata.

NONE     0
LZ4      1   one block without its size                    package lz4
ZLIB     2   a zlib stream; a broker's client ends it with a flush and no checksum
ZSTD     3   one frame                                     package zstandard
SNAPPY   4   one block, which begins with its size         package cramjam

The size before the compression is always written beside the bytes, so no decompression makes more than that.
"""

from __future__ import annotations

import enum
import zlib
from importlib import import_module
from typing import TYPE_CHECKING, Any

from storage.cluster.topics.errors import CompressionUnavailable

if TYPE_CHECKING:
    Buffer = bytes | bytearray | memoryview


class Compression(enum.Enum):
    """A compression, with the number that it has in all formats."""

    NONE = 0
    LZ4 = 1
    ZLIB = 2
    ZSTD = 3
    SNAPPY = 4


class NotDecompressed(Exception):
    """Bytes that do not have this compression and this size before it."""


def compress(compression: Compression, data: bytes) -> bytes:
    """Return the compressed bytes. Raise `CompressionUnavailable` if a package is missing."""
    match compression:
        case Compression.NONE:
            return data
        case Compression.ZLIB:
            return zlib.compress(data)
        case Compression.LZ4:
            return bytes(_package("lz4.block", compression).compress(data, store_size=False))
        case Compression.ZSTD:
            return bytes(_package("zstandard", compression).ZstdCompressor().compress(data))
        case Compression.SNAPPY:
            return bytes(_package("cramjam", compression).snappy.compress_raw(data))


def decompress(compression: Compression, data: Buffer, size: int) -> bytes:
    """Return the bytes before the compression, which are so many. Raise `NotDecompressed`."""
    if compression is Compression.NONE:
        # Writers leave the size out, or set it to that of the payload.
        return bytes(data)
    made = _decompressors[compression](bytes(data), size)
    if len(made) != size:
        raise NotDecompressed(f"{len(made)} bytes after decompression instead of {size}")
    return made


def _decompress_zlib(data: bytes, size: int) -> bytes:
    try:
        # One byte more shows streams that are too long, and 0 would mean no limit.
        return zlib.decompressobj().decompress(data, size + 1)
    except zlib.error as error:
        raise NotDecompressed(str(error)) from error


def _decompress_lz4(data: bytes, size: int) -> bytes:
    block = _package("lz4.block", Compression.LZ4)
    try:
        return bytes(block.decompress(data, uncompressed_size=size))
    except (block.LZ4BlockError, ValueError) as error:
        raise NotDecompressed(str(error)) from error


def _decompress_zstd(data: bytes, size: int) -> bytes:
    zstandard = _package("zstandard", Compression.ZSTD)
    try:
        # The frame is asked first, because its own size would be allocated before it is compared.
        if zstandard.frame_content_size(data) not in (-1, size):
            raise NotDecompressed(f"a frame of another size than {size}")
        return bytes(zstandard.ZstdDecompressor().decompress(data, max_output_size=max(size, 1)))
    except zstandard.ZstdError as error:
        raise NotDecompressed(str(error)) from error


def _decompress_snappy(data: bytes, size: int) -> bytes:
    cramjam = _package("cramjam", Compression.SNAPPY)
    made = bytearray(size)
    try:
        count = cramjam.snappy.decompress_raw_into(data, made)
    except (cramjam.DecompressionError, ValueError) as error:
        raise NotDecompressed(str(error)) from error
    return bytes(made[:count])


_decompressors = {
    Compression.ZLIB: _decompress_zlib,
    Compression.LZ4: _decompress_lz4,
    Compression.ZSTD: _decompress_zstd,
    Compression.SNAPPY: _decompress_snappy,
}


def _package(name: str, compression: Compression) -> Any:
    """Return a module of the extra `topics`, which programs without these compressions do not need."""
    try:
        return import_module(name)
    except ImportError as error:
        raise CompressionUnavailable(compression.name, name.partition(".")[0]) from error
