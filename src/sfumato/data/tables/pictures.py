"""Pictures in a table: the bytes of a file, its path, or both as Hugging Face keeps them, `struct<bytes, path>`."""

import io
from collections.abc import Iterator, Sequence

import pyarrow as pa

from sfumato._check import InputError, one_of
from sfumato.data.image_files import BadImage, OnError, Picture, decode, image_size, refuse_difference
from sfumato.data.store.pack import convert_notes, refusal, skip_notes
from sfumato.data.tables.kinds import is_text, plain_kind
from sfumato.data.tables.paths import find, parts, shown
from sfumato.data.tables.source import Source

_NAMED = 5  # skipped pictures whose reason is kept


def is_picture(kind: pa.DataType) -> bool:
    """Whether a column can hold pictures."""
    if not pa.types.is_struct(kind):
        return _is_bytes(kind)
    names = {kind.field(i).name: kind.field(i).type for i in range(kind.num_fields)}
    return set(names) <= {"bytes", "path"} and ("bytes" in names or is_text(names.get("path", pa.null())))


class Pictures:
    """Decodes the pictures of a column, all of one shape, and counts what was changed to fit or skipped.

    Args:
        source: the table.
        column: of it.
        size: side or (height, width) to bring them to; None if all have the same.
        channels: 1 or 3 to convert them to; None if all have the same.
        on_error: "refuse" or "skip" pictures that cannot be read.

    Raises:
        InputError: size, channels or on_error is none of these.
    """

    def __init__(
        self,
        source: Source,
        column: str,
        size: int | Sequence[int] | None,
        channels: int | None,
        on_error: OnError,
    ) -> None:
        if channels is not None:
            one_of((1, 3), channels=channels)
        one_of(("refuse", "skip"), on_error=on_error)
        self._told, self._place, self._folder = f"{source.told}: {column}", source.place, source.pictures
        self._skip = on_error == "skip"
        self.convert = None if size is None else image_size(size), channels
        self._first: tuple[str, tuple[int, ...]] | None = None
        self._bad: list[str] = []
        self._skipped = self._resized = self._converted = 0

    @property
    def shape(self) -> tuple[int, ...]:
        """Of each picture.

        Raises:
            InputError: none could be read.
        """
        if self._first is None:
            raise InputError(f"{self._told} has no readable pictures: {', '.join(self._bad)}")
        return self._first[1]

    def decoded(self, array: pa.Array, start: int) -> Iterator[tuple[int, Picture, str]]:
        """The readable pictures of some rows, with the place of each among them, and its file's path or "".

        Args:
            array: the rows.
            start: the position of the first one in the table.

        Raises:
            InputError: a picture is broken or missing, or of another size or mode than the first.
        """
        for i, (content, path) in enumerate(map(parts, array.to_pylist())):
            place = self._place(start + i)
            file = shown(self._folder, path) if path is not None and path.strip() else ""
            where = f"{self._told} at {place}" + f" ({file})" * bool(file)
            name = ""
            try:
                if path is not None:
                    name = find(self._folder, path).name
                elif content is None:
                    raise BadImage("is missing (null)")
                picture = decode(io.BytesIO(content) if content is not None else self._folder / name, *self.convert)
            except BadImage as error:
                if not self._skip:
                    raise InputError(refusal(where, str(error))) from None
                self._skipped += 1
                if len(self._bad) < _NAMED:
                    self._bad.append(f"{place} ({f'{file} {error}'.strip()})")
                continue
            self._first = self._first or (where, picture.pixels.shape)
            refuse_difference(self._first, (where, picture.pixels.shape))
            self._resized += picture.size != picture.pixels.shape[:2]
            self._converted += picture.channels != picture.pixels.shape[2]
            yield i, picture, name

    def notes(self) -> list[str]:
        """Lines that count what was skipped or changed."""
        return [
            *skip_notes(self._skipped, self._bad, 0, ()),
            *convert_notes(self._resized, self._converted, self.shape),
        ]


def _is_bytes(kind: pa.DataType) -> bool:
    kind = plain_kind(kind)
    return pa.types.is_binary(kind) or pa.types.is_large_binary(kind)
