"""Reads the header of a GGUF file: what it is, and whether all of it is there.

Not the `gguf` package: that imports numpy, maps the file and parses every tensor and string,
where the server process must stay small and a damaged file must cost nothing. Here every length
is compared with what is left of the file before it is believed, a few hundred kilobytes are held
at a time, and whatever is wrong is one GGUFError, a sentence without the file's folder.
"""

from __future__ import annotations

import os
import re
import stat
import struct
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO

MAX_KEYS = 100_000
MAX_TENSORS = 1_000_000
MAX_KEY_BYTES = 4096
MAX_STRING_BYTES = 16 * 1024 * 1024  # of one value that is kept (a chat template, say)
MAX_STRINGS = 8_000_000  # in all arrays together: they are passed over one by one
MAX_DIMENSIONS = 8
MAX_ARRAY_VALUES = 64  # longer arrays are passed over
BUFFER_BYTES = 256 * 1024
DEFAULT_ALIGNMENT = 32

UNKNOWN_TYPE_BYTES = 2  # an element's, as a guess

_LAYER = re.compile(r"blk\.(\d{1,4})\.")
_LENGTH = struct.Struct("<Q")
_STRING, _ARRAY = 8, 9
_SCALARS = {0: "B", 1: "b", 2: "H", 3: "h", 4: "I", 5: "i", 6: "f", 7: "?", 10: "Q", 11: "q",
            12: "d"}  # fmt: skip
# Elements and bytes of a block, by tensor type; of types that are not here nothing is checked.
_BLOCKS = {
    0: (1, 4), 1: (1, 2), 2: (32, 18), 3: (32, 20), 6: (32, 22), 7: (32, 24), 8: (32, 34),
    9: (32, 36), 10: (256, 84), 11: (256, 110), 12: (256, 144), 13: (256, 176), 14: (256, 210),
    15: (256, 292), 16: (256, 66), 17: (256, 74), 18: (256, 98), 19: (256, 50), 20: (32, 18),
    21: (256, 110), 22: (256, 82), 23: (256, 136), 24: (1, 1), 25: (1, 2), 26: (1, 4),
    27: (1, 8), 28: (1, 8), 29: (256, 56), 30: (1, 2), 34: (256, 54), 35: (256, 66),
    39: (32, 17),
}  # fmt: skip

Scalar = str | int | float | bool
Value = Scalar | list[Scalar]


class GGUFError(Exception):
    """The file cannot be used as a model. The message is one sentence for a person."""


@dataclass(frozen=True, slots=True)
class Split:
    """Which part of a model in several files this is."""

    number: int  # from 0
    count: int


@dataclass(slots=True)
class Weights:
    """Bytes of the tensors."""

    layers: dict[int, int] = field(default_factory=dict)  # by number
    output: int = 0
    tied: bool = True  # no output matrix of its own: the embedding is used
    embedding: int = 0
    n_vocab: int = 0

    def add(self, name: str, n_bytes: int, rows: int) -> None:
        layer = _LAYER.match(name)
        if layer is not None:
            number = int(layer[1])
            self.layers[number] = self.layers.get(number, 0) + n_bytes
        elif name.startswith("output"):
            self.output += n_bytes
            self.tied &= name != "output.weight"
        elif name == "token_embd.weight":
            self.embedding, self.n_vocab = n_bytes, rows


@dataclass(frozen=True, slots=True)
class Header:
    version: int
    n_tensors: int
    values: dict[str, Value]  # without long arrays, and without strings that are not UTF-8
    size: int  # of the file, bytes
    n_parameters: int = 0  # elements of all tensors; 0 when only the values were read
    weights: Weights | None = None  # likewise

    def text(self, key: str) -> str | None:
        value = self.values.get(key)
        return value if isinstance(value, str) else None

    def number(self, key: str) -> int | None:
        value = self.values.get(key)
        return value if isinstance(value, int) and not isinstance(value, bool) else None

    @property
    def architecture(self) -> str:
        return self.text("general.architecture") or ""

    @property
    def name(self) -> str | None:
        return self.text("general.name")

    @property
    def n_ctx_train(self) -> int | None:
        return self.number(f"{self.architecture}.context_length")

    @property
    def is_chat_model(self) -> bool:
        """Not an adapter, an image encoder, or a vocabulary alone."""
        kind = self.text("general.type") or "model"
        return kind == "model" and self.architecture not in ("", "clip") and self.n_tensors > 0

    @property
    def split(self) -> Split | None:
        number, count = self.number("split.no"), self.number("split.count")
        return None if number is None or count is None or count < 2 else Split(number, count)


def read(path: Path, *, whole: bool = True) -> Header:
    """The header. Raises GGUFError.

    `whole`: also checks that no tensor lies beyond the end of the file. Otherwise the reading
    stops before the vocabulary, which is long and comes after what is asked for most.
    """
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):  # before it is opened: a FIFO would block
            kind = "a folder" if path.is_dir() else "not a regular file"
            raise GGUFError(f"{path.name} is {kind}.")
        with open(path, "rb", buffering=0) as file:
            reader = _Reader(file, os.fstat(file.fileno()).st_size, path.name)
            return _header(reader, whole)
    except FileNotFoundError as error:
        raise GGUFError(f"There is no file {path.name}.") from error
    except OSError as error:
        raise GGUFError(f"{path.name} cannot be read: {error.strerror}.") from error
    except ValueError as error:  # a NUL in the path
        raise GGUFError("The file's name is not valid.") from error


class _Reader:
    """Forward over a file, never past its end."""

    def __init__(self, file: BinaryIO, size: int, name: str) -> None:
        self._file = file
        self._buffer = b""
        self._at = 0  # in the buffer
        self._base = 0  # of the buffer in the file
        self.size = size
        self.name = name

    @property
    def position(self) -> int:
        return self._base + self._at

    @property
    def left(self) -> int:
        return self.size - self.position

    def take(self, n: int) -> bytes:
        if n > len(self._buffer) - self._at:
            self._fill(n)
        taken = self._buffer[self._at : self._at + n]
        self._at += n
        return taken

    def peek(self, n: int) -> bytes:
        """What comes next; less at the end of the file."""
        n = min(n, self.left)
        taken = self.take(n)
        self._at -= n
        return taken

    def unpack(self, form: str) -> tuple[Scalar, ...]:
        return struct.unpack("<" + form, self.take(struct.calcsize("<" + form)))

    def whole_number(self, form: str) -> int:
        return int(self.unpack(form)[0])

    def skip(self, n: int) -> None:
        if n > self.left:
            raise self.cut_off()
        if n <= len(self._buffer) - self._at:
            self._at += n
        else:
            self._base, self._buffer, self._at = self.position + n, b"", 0
            self._file.seek(self._base)

    def skip_strings(self, n: int) -> None:
        """Past n texts, each with its length in front: half a million in some vocabularies."""
        while n:
            buffer, at = self._buffer, self._at
            last = len(buffer) - _LENGTH.size
            while n and at <= last:
                after = at + _LENGTH.size + _LENGTH.unpack_from(buffer, at)[0]
                if after > len(buffer):
                    break
                at, n = after, n - 1
            self._at = at
            if n:  # the next one is not in the buffer as a whole
                self.skip(self.whole_number("Q"))
                n -= 1

    def _fill(self, n: int) -> None:
        if n > self.left:
            raise self.cut_off()
        self._base, self._buffer, self._at = self.position, self._buffer[self._at :], 0
        wanted = max(n, min(BUFFER_BYTES, self.left))
        while len(self._buffer) < n:
            read = self._file.read(wanted - len(self._buffer))
            if not read:
                raise self.cut_off()
            self._buffer += read

    def cut_off(self) -> GGUFError:
        return GGUFError(
            f"{self.name} is not complete: it ends after {self.size:,} bytes, inside its header."
        )

    def damaged(self, what: str) -> GGUFError:
        return GGUFError(f"{self.name} is damaged: {what}.")


# ---- the parts of the header ------------------------------------------------------------------


def _header(reader: _Reader, whole: bool) -> Header:
    version = _version(reader)
    n_tensors, n_values = reader.whole_number("Q"), reader.whole_number("Q")
    if n_tensors > MAX_TENSORS or n_values > MAX_KEYS:
        raise reader.damaged(f"it claims to have {n_tensors} tensors and {n_values} values")
    values: dict[str, Value] = {}
    strings = _Budget(MAX_STRINGS)
    for _ in range(n_values):
        key = _string(reader, MAX_KEY_BYTES).decode("utf-8", "replace")
        if not whole and key.startswith("tokenizer.ggml.") and values:
            return Header(version, n_tensors, values, reader.size)
        value = _value(reader, reader.whole_number("I"), strings)
        if value is not None:
            values[key] = value
    if not whole:
        return Header(version, n_tensors, values, reader.size)
    weights = Weights()
    n_parameters = _tensors(reader, n_tensors, _alignment(reader, values), weights)
    return Header(version, n_tensors, values, reader.size, n_parameters, weights)


def _version(reader: _Reader) -> int:
    if reader.size == 0:
        raise GGUFError(f"{reader.name} is empty.")
    start = reader.peek(512)
    if not start.startswith(b"GGUF"):
        raise GGUFError(f"{reader.name} is {_kind_of(start)}.")
    if len(start) < 8:
        raise reader.cut_off()
    (version,) = struct.unpack_from("<I", start, 4)
    if version & 0xFFFF == 0:
        raise GGUFError(f"{reader.name} was written for big-endian machines.")
    if not 2 <= version <= 3:
        raise GGUFError(f"{reader.name} has GGUF version {version}; versions 2 and 3 are known.")
    reader.skip(8)
    return int(version)


def _kind_of(start: bytes) -> str:
    text = start.lstrip(b"\xef\xbb\xbf \t\r\n").lower()
    if text.startswith(b"version https://git-lfs"):
        return "a Git LFS pointer, not the model itself: fetch it with `git lfs pull`"
    if re.match(rb"<(!doctype|html|\?xml|head)", text):
        return "a web page, not a model: the download went wrong"
    if text.startswith((b"pk\x03\x04", b"\x80")):
        return "a PyTorch file, not GGUF"
    if re.match(rb'.{8}\{"', start, re.DOTALL):
        return "a safetensors file, not GGUF"
    if start.startswith((b"lmgg", b"ggml", b"fmgg", b"ggmf", b"tjgg", b"ggjt")):
        return "a model in a format older than GGUF"
    if b"\0" not in start:
        return "a text file, not a model"
    return "not a GGUF file"


@dataclass(slots=True)
class _Budget:
    left: int


def _string(reader: _Reader, most: int) -> bytes:
    length = reader.whole_number("Q")
    if length > reader.left:
        raise reader.cut_off()
    if length > most:
        raise reader.damaged(f"a text in its header has {length} bytes")
    return reader.take(length)


def _value(reader: _Reader, kind: int, strings: _Budget) -> Value | None:
    """None for a long array, which is passed over, and for a text that is not UTF-8."""
    if kind == _STRING:
        try:
            return _string(reader, MAX_STRING_BYTES).decode("utf-8")
        except UnicodeDecodeError:
            return None
    if kind in _SCALARS:
        return reader.unpack(_SCALARS[kind])[0]
    if kind != _ARRAY:
        raise reader.damaged(f"a value in its header is of the unknown kind {kind}")
    of, length = reader.whole_number("I"), reader.whole_number("Q")
    if of == _STRING:
        return _strings(reader, length, strings)
    if of not in _SCALARS:
        raise reader.damaged(f"an array in its header is of the unknown kind {of}")
    n_bytes = struct.calcsize("<" + _SCALARS[of]) * length
    if n_bytes > reader.left:
        raise reader.cut_off()
    if length > MAX_ARRAY_VALUES:
        reader.skip(n_bytes)
        return None
    return list(reader.unpack(f"{length}{_SCALARS[of]}"))


def _strings(reader: _Reader, length: int, strings: _Budget) -> Value | None:
    if length * 8 > reader.left:
        raise reader.cut_off()
    strings.left -= length
    if strings.left < 0:
        raise reader.damaged(f"a list in its header has {length} texts")
    if length > MAX_ARRAY_VALUES:
        reader.skip_strings(length)
        return None
    raw = [_string(reader, MAX_STRING_BYTES) for _ in range(length)]
    return [text.decode("utf-8", "replace") for text in raw]


def _alignment(reader: _Reader, values: dict[str, Value]) -> int:
    alignment = values.get("general.alignment", DEFAULT_ALIGNMENT)
    if not isinstance(alignment, int) or alignment < 1 or alignment & (alignment - 1):
        raise reader.damaged("its alignment is not a power of two")
    return alignment


def _tensors(reader: _Reader, n_tensors: int, alignment: int, weights: Weights) -> int:
    """The number of parameters. Raises GGUFError where data is missing."""
    n_parameters = end = 0
    for _ in range(n_tensors):
        name = _string(reader, MAX_KEY_BYTES).decode("utf-8", "replace")
        n_dimensions = reader.whole_number("I")
        if n_dimensions > MAX_DIMENSIONS:
            raise reader.damaged(f"a tensor has {n_dimensions} dimensions")
        elements = rows = 1
        for _ in range(n_dimensions):
            rows = reader.whole_number("Q")
            elements *= rows
        kind, offset = reader.whole_number("I"), reader.whole_number("Q")
        n_parameters += elements
        per_block, n_bytes = _BLOCKS.get(kind, (1, 0))
        end = max(end, offset + -(-elements // per_block) * n_bytes)
        n_bytes = n_bytes or UNKNOWN_TYPE_BYTES
        weights.add(name, -(-elements // per_block) * n_bytes, rows)
    missing = -(-reader.position // alignment) * alignment + end - reader.size
    if n_tensors and missing > 0:
        raise GGUFError(
            f"{reader.name} is not complete: {missing:,} of "
            f"{reader.size + missing:,} bytes are missing."
        )
    return n_parameters
