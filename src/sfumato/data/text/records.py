"""Texts and whose they are, one record after the other: a play by its roles, or JSON lines.

Nothing is kept: a file of any size is read line by line.
"""

import gzip
from collections.abc import Iterator
from pathlib import Path

from sfumato._check import InputError
from sfumato._files import parse_json
from sfumato.data.safeguards import refuse_blank, refuse_undecodable_name

LINES = (".jsonl", ".ndjson", ".jsonl.gz", ".ndjson.gz")
PLAYS = (".txt", ".txt.gz", "")
UNDERSTOOD = (
    "JSON lines of objects with a user and a text (.jsonl, .ndjson, also .gz), or a play as plain text (.txt): blocks "
    "of 'Role:' and the lines spoken, with an empty line between them"
)


def records(path: Path, *, user: str | None, text: str | None) -> Iterator[tuple[str, str]]:
    """Each record's user and text, in the file's order.

    Args:
        path: JSON lines or a play, by its name.
        user, text: the fields of JSON lines; None takes "user" and "text".

    Raises:
        InputError: there is no such file, it is of another kind, or what it holds is not as it should be; names the
            line.
    """
    if not path.is_file():
        raise InputError(f"there is no file {path}; give {UNDERSTOOD}")
    name = path.name.lower()
    if name.endswith(LINES):
        return json_lines(path, user or "user", text or "text")
    suffix = "".join(path.suffixes[-2:]).lower() if name.endswith(".gz") else path.suffix.lower()
    if suffix not in PLAYS:
        raise InputError(f"{path} cannot be read as texts of users; give {UNDERSTOOD}")
    for field, given in (("user", user), ("input", text)):
        if given is not None:
            raise InputError(f"{field}={given!r} is a field of JSON lines, {path} is a play; leave it out")
    return play(path)


def json_lines(path: Path, user: str, text: str) -> Iterator[tuple[str, str]]:
    """Records of a file with a JSON object a line; arguments and errors as for `records`."""
    for number, line in _lines(path):
        if not line.strip():
            continue
        try:
            record = parse_json(line.encode())
        except ValueError as error:
            reason = " ".join(str(error).split())[:200]
            raise InputError(f"{path} line {number} is not JSON: {reason}; needed is an object a line") from None
        if not isinstance(record, dict):
            raise InputError(f"{path} line {number} is a {type(record).__name__}, not an object with {user} and {text}")
        for role, field in (("user", user), ("input", text)):
            if field not in record:
                raise InputError(
                    f"{path} line {number} has no field {field!r}; it has {', '.join(record) or 'none'}; name the "
                    f"right one with {role}= (--{role})"
                )
        whose, said = record[user], record[text]
        if not isinstance(whose, str | int) or isinstance(whose, bool):
            raise InputError(f"{path} line {number}: {user} must be a text or a whole number, got {_shown(whose)}")
        if not isinstance(said, str):
            raise InputError(f"{path} line {number}: {text} must be a text, got {_shown(said)}")
        name = str(whose)
        refuse_undecodable_name(name, "user", f"{path} line {number}")
        refuse_blank(name, f"the user {user!r}", f"{path} line {number}")
        yield name, said


def play(path: Path) -> Iterator[tuple[str, str]]:
    """The speeches of a play; a block that names no role goes on with the speech before it."""
    role: str | None = None
    speech: list[str] = []
    begins = True
    for number, line in _lines(path):
        line = line.rstrip()
        if not line:
            begins = True
            continue
        if begins and line.endswith(":") and len(line) > 1:
            if role is not None and speech:
                yield role, "\n".join(speech)
            role, speech = line[:-1].strip(), []
            refuse_blank(role, "the role", f"{path} line {number}")
        elif role is None:
            raise InputError(
                f"{path} line {number} is spoken by nobody: a play begins with a role, 'Role:' on a line of its own "
                f"above what it speaks; got {_shown(line)}"
            )
        else:
            speech.append(line)
        begins = False
    if role is not None and speech:
        yield role, "\n".join(speech)


def _lines(path: Path) -> Iterator[tuple[int, str]]:
    """Lines and their numbers, from 1."""
    opener = gzip.open if path.name.lower().endswith(".gz") else open
    number = 0
    try:
        with opener(path, "rt", encoding="utf-8-sig") as content:
            for number, line in enumerate(content, 1):
                yield number, line
    except UnicodeDecodeError as error:
        raise InputError(f"{path} is not UTF-8 behind line {number} ({error.reason}); convert it to UTF-8") from None
    except gzip.BadGzipFile:
        raise InputError(f"{path} is not compressed by gzip, as .gz says; compress it, or leave .gz out") from None
    except (OSError, EOFError) as error:
        raise InputError(f"{path} cannot be read behind line {number}: {' '.join(str(error).split())[:200]}") from None


def _shown(value: object) -> str:
    shown = repr(value)
    return shown if len(shown) <= 40 else f"{shown[:40]}…"
