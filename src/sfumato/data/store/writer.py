"""Writing a store in constant memory, so that a stop at any moment loses no finished user."""

import errno
import fcntl
import hashlib
import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from sfumato._check import InputError
from sfumato._files import read_json, sync_folder, write_atomic, write_json
from sfumato.data.mapped import ChunkedRows, Strings
from sfumato.data.store.encoded import Encoded, reference_column, reference_of
from sfumato.data.store.format import (
    Column,
    Frame,
    Stream,
    batch_of,
    batch_rows,
    ending,
    lengths,
    schema_of,
    write_table,
)
from sfumato.data.store.seal import (
    CLASSES,
    EXAMPLES,
    ITEMS,
    NAMES,
    PICTURES,
    USERS,
    chained,
    content_digest,
    file_digest,
    index_digest,
    looks_of,
    note_verified,
    partial_folder,
    write_facts,
)

_FULL = {errno.ENOSPC, errno.EDQUOT, errno.EFBIG}
TARGET = "target"
OWNER = "owner"
_USER = Column("user", (), np.dtype(np.int64))
_WAITING = "waiting-"  # begins the name of the file of rows whose batch is not full


class StoreWriter:
    """A store in the making.

    Args:
        destination: the finished store's folder; it must not exist or be empty.
        columns: what is held of each example.
        users: whether examples belong to users; a column says to which.
        class_names: whether classes have names.
        class_groups: whether classes have groups.
        example_names: whether examples have names, such as the paths of their pictures.
        pictures: whether bytes of pictures are kept.
        options: JSON values that must be the same when writing goes on after a stop.
        resume: go on where an earlier run stopped, if there was one.
        private: for its owner's eyes only.

    Raises:
        InputError: the destination is not empty, another process writes it, or what an earlier run left there
            was made with other options or is damaged.
    """

    def __init__(
        self,
        destination: Path,
        columns: Sequence[Column],
        *,
        users: bool = True,
        class_names: bool,
        class_groups: bool = False,
        example_names: bool = False,
        pictures: bool = False,
        options: dict[str, Any],
        resume: bool = True,
        private: bool = False,
    ) -> None:
        self.destination = destination
        self.folder = partial_folder(destination)
        self.columns = (_USER, *columns) if users else tuple(columns)
        self.users = 0
        self.examples = 0
        self.classes = 0
        self.extra: dict[str, Any] = {}
        self._fields = [{"name": one.name, "shape": list(one.shape), "dtype": one.dtype.str} for one in self.columns]
        self._options = options
        self._schema = schema_of(self.columns)
        self._size = batch_rows(self.columns)
        self._chain = bytes(32)
        self._batch, self._held = self._new_batch(), 0
        refuse_full(destination)
        self.folder.parent.mkdir(parents=True, exist_ok=True)
        self.folder.mkdir(mode=0o700 if private else 0o777, exist_ok=True)
        if private:
            self.folder.chmod(0o700)  # it may have been there
        self._lock = self._locked()
        self._open = True
        texts = ["users"] * users + ["classes"] * class_names + ["groups"] * class_groups + ["names"] * example_names
        names = [EXAMPLES, "skipped.jsonl", *["ends.bin"] * users, *[PICTURES] * pictures]
        names += [f"{text}.{part}" for text in texts for part in ("bin", "offsets.bin")]
        self._streams = {name: Stream(self.folder / name) for name in names}
        self._divided, self._texts = users, texts
        self.resumed = resume and self._resume()
        if not self.resumed:
            for name, stream in self._streams.items():
                stream.resume(0)
                if name.endswith("offsets.bin"):
                    stream.write(bytes(8))
            self._append(memoryview(self._schema.serialize()))
        self.mark()

    def add(self, *arrays: np.ndarray) -> None:
        """Append examples, of the current user if there are users: [n, *shape] for each of the columns."""
        count, done = len(arrays[0]), 0
        whole = (np.full(count, self.users), *arrays) if self._divided else arrays
        while done < count:
            taken = min(count - done, self._size - self._held)
            for held, array in zip(self._batch, whole, strict=True):
                held[self._held : self._held + taken] = array[done : done + taken]
            done, self._held = done + taken, self._held + taken
            if self._held == self._size:
                self._write_batch()
        self.examples += count

    def end_user(self, name: str) -> None:
        """Close the current user, whose examples were added last, under a name."""
        self._streams["ends.bin"].write(self.examples.to_bytes(8, "little"))
        self._string("users", name)
        self.users += 1

    def add_class(self, name: str | None = None, group: str | None = None) -> int:
        """Register the next class and return its number."""
        if name is not None:
            self._string("classes", name)
        if group is not None:
            self._string("groups", group)
        self.classes += 1
        return self.classes - 1

    def add_name(self, name: str) -> None:
        """The name of the next example that has none."""
        self._string("names", name)

    def add_pictures(self, contents: Sequence[bytes]) -> np.ndarray:
        """Keep the bytes of pictures; gives the references to them, int64 [n, 6]."""
        stream, column = self._streams[PICTURES], reference_column(PICTURES)
        references = np.empty((len(contents), *column.shape), column.dtype)
        for reference, content in zip(references, contents, strict=True):
            reference[...] = reference_of(stream.length, content)
            stream.write(content)
        return references

    @property
    def picture_bytes(self) -> int:
        """Bytes of the pictures that are kept so far."""
        return self._streams[PICTURES].length if PICTURES in self._streams else 0

    def rows(self, name: str) -> ChunkedRows:
        """A column of what was added so far, mapped; valid until more is added."""
        self._streams[EXAMPLES].flush()
        place = [column.name for column in self.columns].index(name)
        frame = Frame(self.folder / EXAMPLES, self.columns, self.examples - self._held)
        return ChunkedRows(frame.rows(name).whole, self._batch[place][: self._held].view(self.columns[place].dtype))

    def skip(self, what: str, reason: str) -> None:
        """Record what was left out."""
        self._streams["skipped.jsonl"].write((json.dumps({"what": what, "reason": reason}) + "\n").encode())

    def skipped(self) -> list[tuple[str, str]]:
        """What was left out so far, with the reason."""
        self._streams["skipped.jsonl"].flush()
        lines = (self.folder / "skipped.jsonl").read_text("utf-8").splitlines()
        return [(each["what"], each["reason"]) for each in map(json.loads, lines)]

    def mark(self) -> None:
        """All users so far are complete: a stop from here on goes back to this point."""
        self._marked = self._batch, self._held
        self._state = {
            "options": self._options,
            "users": self.users,
            "examples": self.examples,
            "classes": self.classes,
            "chain": self._chain.hex(),
            "extra": json.loads(json.dumps(self.extra)),
            "lengths": {name: stream.length for name, stream in self._streams.items()},
        }

    def commit(self) -> None:
        """Put everything up to the last mark safely on the disk."""
        for stream in self._streams.values():
            stream.flush()
        arrays, held = self._marked
        waiting = batch_of(self._schema, [array[:held] for array in arrays]).serialize().to_pybytes()
        name = _WAITING + hashlib.sha256(waiting).hexdigest()
        write_atomic(self.folder / name, waiting)
        write_json(self.folder / "state.json", {**self._state, "waiting": name})
        for other in self.folder.glob(f"{_WAITING}*"):
            if other.name != name:
                other.unlink()

    def finish(
        self,
        facts: dict[str, Any],
        numbers: np.ndarray | None = None,
        items: Sequence[str] | None = None,
        encoded: Encoded | None = None,
    ) -> Path:
        """Seal the store and give it its name.

        Args:
            facts: what else store.json states; JSON.
            numbers: int64 [classes], the final number of each class as it was added; None leaves targets as they are.
            items: names of the items that inputs name by their number, or None.
            encoded: the pictures that inputs refer to; a file of another store in the making gets a second name here.

        Returns:
            the store's folder.

        Raises:
            InputError: nothing was written.
        """
        self.mark()
        self.commit()
        if self.examples == 0:
            what = "users with examples" if self._divided else "examples"
            raise InputError(f"there are no {what} to write to {self.destination}")
        self._write_end()
        if numbers is not None and (numbers != np.arange(len(numbers))).any():
            self._renumber(numbers)
        self._write_tables()
        if items is not None:
            write_table(self.folder / ITEMS, {"name": Strings.packed(items)})
            facts = {**facts, "items": len(items)}
        if "names" in self._texts:
            facts = {**facts, "names_sha256": file_digest(self.folder / NAMES)}
        files = [self.folder / name for name in (EXAMPLES, USERS, CLASSES, ITEMS, NAMES, "skipped.jsonl")]
        if encoded is not None:
            facts = {**facts, "encoded": encoded.columns}
            files.append(self.folder / PICTURES)
            if PICTURES not in self._streams:
                files[-1].unlink(missing_ok=True)
                try:
                    os.link(encoded.file, files[-1])
                except OSError:  # file systems without second names
                    shutil.copyfile(encoded.file, files[-1])
        sizes = {file.name: file.stat().st_size for file in files if file.exists() and file.stat().st_size}
        write_facts(
            self.folder,
            {
                "fields": self._fields,
                "users": self.users if self._divided else None,
                "examples": self.examples,
                "classes": self.classes,
                "files": sizes,
                "index_sha256": index_digest(self.folder),
                "content_sha256": self._chain.hex(),
                "options": self._options,
                **facts,
            },
        )
        os.rename(self.folder, self.destination)
        rest = {"state.json", "lock", *self._streams} - set(sizes)
        for file in (*rest, *(path.name for path in self.destination.glob(f"{_WAITING}*"))):
            (self.destination / file).unlink()  # after the rename: a stop before it leaves all that a later run needs
        if not self.resumed:  # what an earlier run wrote may have been changed since
            note_verified(self.destination, looks_of(self.destination, self._chain.hex()))
        sync_folder(self.destination)
        sync_folder(self.destination.absolute().parent)
        self.close()
        return self.destination

    def close(self) -> None:
        """Release the files; what was committed stays for a later run."""
        if self._open:
            self._open = False
            for stream in self._streams.values():
                stream.close()
            os.close(self._lock)

    def abandon(self) -> None:
        """Release the files and delete what is not finished."""
        if self._open:
            self.close()
            shutil.rmtree(self.folder, ignore_errors=True)

    def _new_batch(self) -> list[np.ndarray]:
        return [np.empty((self._size, *column.shape), column.stored) for column in self.columns]

    def _write_batch(self) -> tuple[int, int]:
        """Append the rows that wait; the last mark may need theirs again, so the next batch gets arrays of its own.

        Returns:
            the lengths of header and body.
        """
        content = batch_of(self._schema, [array[: self._held] for array in self._batch]).serialize()
        self._append(memoryview(content))
        self._batch, self._held = self._new_batch(), 0
        return lengths(content)

    def _write_end(self) -> None:
        """Append the rows that wait, and where the batches are."""
        header, body = lengths(batch_of(self._schema, self._new_batch()).serialize())
        first, step = len(self._schema.serialize()), header + body
        batches = [(first + i * step, header, body) for i in range(self.examples // self._size)]
        if self._held:
            batches.append((first + len(batches) * step, *self._write_batch()))
        self._append(ending(self._schema, batches))
        self._streams[EXAMPLES].flush()

    def _append(self, content: bytes | memoryview) -> None:
        self._streams[EXAMPLES].write(content)
        self._chain = chained(self._chain, content)

    def _renumber(self, numbers: np.ndarray) -> None:
        """Give the classes their final numbers, which are known when all examples are."""
        frame = Frame(self.folder / EXAMPLES, self.columns, self.examples, "r+")
        for targets in frame.rows(TARGET).chunks:
            targets[...] = numbers[targets]
        frame.content.flush()
        self._chain = bytes.fromhex(content_digest(frame.content, frame.pieces))

    def _write_tables(self) -> None:
        """The tables of users and classes."""
        for stream in self._streams.values():
            stream.flush()
        texts = {name: self._mapped_texts(name) for name in self._texts}
        if self._divided:
            ends = np.fromfile(self.folder / "ends.bin", "<i8")
            sizes = np.diff(ends, prepend=0)
            write_table(self.folder / USERS, {"name": texts["users"], "start": ends - sizes, "count": sizes})
        named = {one: texts[many] for one, many in (("name", "classes"), ("group", "groups")) if many in texts}
        if named and self.classes:
            write_table(self.folder / CLASSES, named)
        if "names" in texts:
            write_table(self.folder / NAMES, {"name": texts["names"]})

    def _mapped_texts(self, name: str) -> Strings:
        content, offsets = self.folder / f"{name}.bin", self.folder / f"{name}.offsets.bin"
        held = np.memmap(content, np.uint8, "r") if content.stat().st_size else np.zeros(0, np.uint8)
        return Strings(held, np.memmap(offsets, "<i8", "r"))

    def _string(self, name: str, value: str) -> None:
        content = self._streams[f"{name}.bin"]
        content.write(value.encode("utf-8", "surrogateescape"))
        self._streams[f"{name}.offsets.bin"].write(content.length.to_bytes(8, "little"))

    def _locked(self) -> int:
        handle = os.open(self.folder / "lock", os.O_CREAT | os.O_RDWR, 0o644)
        try:
            fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            os.close(handle)
            raise InputError(f"another process is writing {self.destination}; wait for it to end") from None
        return handle

    def _resume(self) -> bool:
        file = self.folder / "state.json"
        if not file.exists():
            return False
        again = f"delete {self.folder} to start again"
        try:
            state = read_json(file)
            options, lengths = state["options"], state["lengths"]
            self.users, self.examples, self.classes = state["users"], state["examples"], state["classes"]
            self._chain, self.extra = bytes.fromhex(state["chain"]), state["extra"]
            whole = set(lengths) == set(self._streams) or options != self._options
            waiting = str(state["waiting"])
        except (ValueError, KeyError, TypeError):
            raise InputError(f"{file} is damaged; {again}") from None
        if options != self._options:
            differ = [key for key in self._options if options.get(key) != self._options[key]]
            what = ", ".join(f"{key}={options.get(key)!r} then, {self._options[key]!r} now" for key in differ)
            raise InputError(f"{self.destination} was begun with other options ({what}); use the same, or {again}")
        whole = whole and all(stream.resume(lengths[name]) for name, stream in self._streams.items())
        if not whole or not self._take_up(self.folder / waiting):
            raise InputError(f"the unfinished store {self.folder} is damaged; {again}")
        return True

    def _take_up(self, file: Path) -> bool:
        """Let the rows of an earlier run's last batch wait again; False if they are not as they were written."""
        content = file.read_bytes() if file.is_file() else b""
        if file.name != _WAITING + hashlib.sha256(content).hexdigest():
            return False
        batch = pa.ipc.read_record_batch(pa.ipc.read_message(content), self._schema)
        self._held = batch.num_rows
        for held, array in zip(self._batch, batch.columns, strict=True):
            values = array.buffers()[-1]
            if self._held and held[0].size:
                held[: self._held] = np.frombuffer(values, held.dtype).reshape(-1, *held.shape[1:])
        return self._held == self.examples % self._size


def refuse_full(destination: Path) -> None:
    """Refuse a destination that is not an empty or absent folder, or is in use as the working folder."""
    if os.path.abspath(destination) == os.getcwd():
        raise InputError(f"{destination} is the folder you are in, which cannot be replaced; name a new one")
    if destination.exists() and not destination.is_dir():
        raise InputError(f"{destination} is a file; choose a folder that does not exist yet")
    if destination.is_dir() and any(destination.iterdir()):
        raise InputError(f"{destination} is not empty; choose another folder or delete it")


def disk_full(error: OSError, writer: StoreWriter) -> InputError | None:
    """The line for a disk that is full, or None if the error is another one."""
    if error.errno not in _FULL:
        return None
    done = f"{writer.users:,} users" if writer.users else f"{writer.examples:,} examples"
    return InputError(
        f"no space left for {writer.destination} after {done}; make room and run the same command again: it goes on "
        "from there"
    )
