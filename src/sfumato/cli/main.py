"""`sfumato`: finds the command, runs it, and turns every mistake into one line.

Exit codes: 0 done, 2 a mistake in what was given (one line on stderr, nothing lost), 130 stopped by a signal.
A command's module is imported when it is called, so that `sfumato --help` and the accounting commands answer
without loading torch.
"""

import errno
import io
import os
import re
import signal
import sys
import threading
import warnings
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import FrameType
from typing import Any, TextIO

from sfumato import __version__
from sfumato._bar import begin
from sfumato._check import InputError, guess
from sfumato._extras import remedy
from sfumato.cli.commands import COMMANDS, Command
from sfumato.cli.console import STOPPED, Answer, SettingsError, complain, is_text, leads, notify, table


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words behind `sfumato`; None takes those of the process.

    Returns:
        the exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    begin()
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ε shall not end a run
    with _short_warnings(words):
        try:
            with _ended_as_by_ctrl_c():
                code = _dispatch(words)
            sys.stdout.flush()
            return code
        except SettingsError as error:  # of a file, whose names are fields
            complain(str(error))
        except InputError as error:
            complain(_with_option_names(str(error), words))
        except SystemExit as stop:  # help was printed
            return int(stop.code or 0)
        except BrokenPipeError:  # the reader of our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            complain(_reason(error))
        except ModuleNotFoundError as error:
            line = remedy(error)
            if line is None:
                raise
            complain(line)
        except (MemoryError, RuntimeError) as error:
            if not _memory_ran_out(error):
                raise
            complain(f"memory ran out{_what_for(error)}; lower the sizes and counts that were given, or make room")
        except KeyboardInterrupt:
            notify("stopped")
            return 130
    return 2


class _Stop:
    """Raises KeyboardInterrupt at a signal and remembers it in `asked`, where a run looks before it begins: other
    packages have imports that swallow the exception."""

    asked = False

    def __call__(self, number: int, frame: FrameType | None) -> None:
        self.asked = True
        raise KeyboardInterrupt


@contextmanager
def _ended_as_by_ctrl_c() -> Iterator[None]:
    """SIGTERM stops a command as Ctrl-C does, so that no half-written private file stays behind."""
    usual = {signal.SIGTERM: signal.SIG_DFL, signal.SIGINT: signal.default_int_handler}
    main_thread = threading.current_thread() is threading.main_thread()
    ours = {number: handler for number, handler in usual.items() if main_thread and signal.getsignal(number) == handler}
    stop = _Stop()
    for number in ours:
        signal.signal(number, stop)
    try:
        yield
    finally:
        for number, handler in ours.items():
            signal.signal(number, handler)


def _dispatch(words: list[str]) -> int:
    _refuse_unreadable(words)
    for count in (2, 1):
        name = " ".join(words[:count])
        if command := COMMANDS.get(name):
            options = _options(command, name, words[count:])
            answer = _run(command, name, options)
            return answer.give(as_json=options.json if hasattr(options, "json") else options.run.json)
    if words in (["--version"], ["version"]):
        print(f"sfumato {__version__}")
        return 0
    if words[:1] == ["--completion"]:
        from sfumato.cli.parse import print_completion  # late: it imports every command

        print_completion(words[1:])
        return 0
    groups = {name.split()[0] for name in COMMANDS if " " in name}
    group = words[0] if words and words[0] in groups else ""
    if not words or words[-1] in ("-h", "--help", "--help-all") or words == [group]:
        _overview(f"{group} " if group else "")
        return 0
    raise InputError(_no_command(" ".join(words[: 2 if group else 1])))


def _run(command: Command, name: str, options: Any) -> Answer:
    """Do what the command does. A stop that reaches this place left no run that it had to name."""
    try:
        return command.run(options)
    except KeyboardInterrupt:
        run: Any = getattr(options, "run", None)
        if not hasattr(run, "resume") or run.dry_run:
            raise
        again = "start it again" if run.resume is None else f"go on with: sfumato {name} --resume {run.resume}"
        began = "began, so no folder was made" if run.resume is None else "went on"
        notify(f"stopped before the run {began}; {again}")
        return STOPPED


def _options(command: Command, name: str, argv: Sequence[str]) -> Any:
    """The options of a command; help is printed here, and ends it."""
    if command.reader is not None:
        reader = command.found(command.reader)
        return reader(argv) if command.first is None else reader(command.first, argv)
    from sfumato.cli.parse import parse  # late: the overview needs no parser

    return parse(command.kind(), argv, command=name, about=command.about())


def _command(words: Sequence[str]) -> Command | None:
    """The command that these words begin with."""
    return next((COMMANDS[name] for count in (2, 1) if (name := " ".join(words[:count])) in COMMANDS), None)


def _with_option_names(message: str, words: Sequence[str]) -> str:
    """A message with the options of the command by their names."""
    command = _command(words)
    if command is None:
        return message
    from sfumato.cli.parts import read_options  # late: --help needs no parser

    try:
        options = read_options(command.kind(), words)
    except InputError:  # a word that stands for no part
        options = read_options(command.kind())
    return with_option_names(message, options.flagged)


_TWICE = re.compile(r"(--[a-z-]+)(?: True)? \((\1\b[^)]*)\)")


def with_option_names(message: str, names: Collection[str]) -> str:
    """A message of the library in the words of the command line: `clip_norm=2` is `--clip-norm 2` there.

    What refuses a number does not know who gave it. Names of several words that are options of the command are written
    as options, those of parts with their points, and those of one word where a message asks for them; what stands in
    quotes, in a path or in a call of Python is left alone.

    >>> names = ["clients_per_round", "head_classes", "rounds"]
    >>> with_option_names("lower clients_per_round, or use head_classes=global", names)
    'lower --clients-per-round, or use --head-classes global'
    >>> with_option_names("numbers need both ends of their range; give low and high", ["low", "high"])
    'numbers need both ends of their range; give --low and --high'
    >>> with_option_names("leave out prefix_cache (--prefix-cache)", ["prefix_cache"])
    'leave out --prefix-cache'
    >>> with_option_names("go on with resume=True (--resume runs/1)", ["resume", "clip_norm"])
    'go on with --resume runs/1'
    >>> with_option_names("clipping.quantile must be < 1, got 2", ["clipping.quantile"])
    '--clipping.quantile must be < 1, got 2'
    >>> with_option_names("runs/clip_norm.json and 'clip_norm' and models.fit(clip_norm=2)", ["clip_norm"])
    "runs/clip_norm.json and 'clip_norm' and models.fit(clip_norm=2)"

    Args:
        message: as the library words it.
        names: of the command's fields; those of one word are words, but behind "give" and before a value.
    """
    long = sorted((name for name in names if "_" in name or "." in name), key=len, reverse=True)
    short = "|".join(re.escape(name) for name in names if name not in long)
    if short:
        asked = re.compile(rf"\bgive ({short})(?: and ({short}))?(?=[,;]|$)")
        message = asked.sub(
            lambda match: "give " + " and ".join(f"--{name}" for name in match.groups() if name), message
        )
        message = re.sub(rf"(?<![\w./\\'\"=-])({short})=(?=\w)", r"--\1 ", message)
    if not long:
        return message
    before, after = r"(?<![\w./\\'\"=-])(?<!\w\()", r"(?:(=)(?=[\w\"'-])|(?![\w./\\'\"=-])|(?=\.(?:\s|$)))"
    found = re.compile(f"{before}({'|'.join(map(re.escape, long))}){after}")
    message = found.sub(lambda match: f"--{match[1].replace('_', '-')}{' ' if match[2] else ''}", message)
    return _TWICE.sub(r"\2", message)


def _no_command(given: str) -> str:
    from sfumato.cli.parse import shortened  # late: --help needs no parser

    hint = guess(given, [*COMMANDS, "--help", "--version", "--completion"])
    known = "sfumato --help lists them" if hint else f"the commands are {', '.join(COMMANDS)}"
    return f"there is no command {shortened(given)!r}{hint}; {known}"


def _refuse_unreadable(words: list[str]) -> None:
    """Refuse words that no file can be named by, or that cannot be written down again."""
    for place, word in enumerate(words, 1):
        if not is_text(word):
            raise InputError(
                f"word {place} of the command, {word[:60]!a}, must be text in UTF-8; rename a file of that name, "
                "or give a link to it"
            )


def _overview(prefix: str) -> None:
    if leads():
        print(
            "usage: sfumato COMMAND [options]\n\nTrain on records that belong to people, and state what it cost them.\n"
        )
        chosen = {name: command for name, command in COMMANDS.items() if name.startswith(prefix)}
        table(["command", "what it does"], [[name, command.summary] for name, command in chosen.items()])
        print(
            "\nsfumato COMMAND --help shows the options that matter, --help-all every one.\n"
            "sfumato --completion bash (or zsh, fish) prints a script that completes words.\n"
            "A first run: sfumato fedemb --data glyphs --epsilon 8"
        )


_REMEDIES = {
    errno.ENOENT: "give a path that exists",
    errno.ENOTDIR: "a part of the path is a file; give another path",
    errno.EISDIR: "give a file",
    errno.EEXIST: "give another path",
    errno.ENOTEMPTY: "give another path",
    errno.EACCES: "give a path that you may use",
    errno.EPERM: "give a path that you may use",
    errno.EROFS: "give a path that can be written to",
    errno.ENAMETOOLONG: "give a shorter path",
    errno.ELOOP: "the path is a circle of links; give another one",
    errno.ENOSPC: "make room on the disk and run it again",
    errno.EDQUOT: "make room on the disk and run it again",
    errno.EFBIG: "make room on the disk and run it again",
    errno.EMFILE: "allow more open files (ulimit -n)",
}


def _reason(error: OSError) -> str:
    """One line for an error of the operating system."""
    what = error.strerror or str(error) or type(error).__name__
    where = f"{error.filename}: " if error.filename is not None else ""
    remedy = _REMEDIES.get(error.errno or 0)
    return f"{where}{what}" + (f"; {remedy}" if remedy else "")


def _what_for(error: Exception) -> str:
    """What did not fit, where the library that asked for it reports it."""
    match = re.search(r"allocate ([\d.]+ \w+)", str(error))
    return f" ({match[1]} were asked for)" if match else ""


def _memory_ran_out(error: Exception) -> bool:
    """Whether an error says so, in NumPy's or torch's words."""
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in ("can't allocate memory", "out of memory", "not enough memory")
    )


@contextmanager
def _short_warnings(words: Sequence[str]) -> Iterator[None]:
    """Our own warnings in one line, each once; those of other packages as usual."""
    ours = str(Path(__file__).resolve().parents[1])
    usual = warnings.showwarning
    reported: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if str(Path(filename).resolve()).startswith(ours) and category is UserWarning:
            if str(message) not in reported:
                notify(f"warning: {_with_option_names(str(message), words)}")
            reported.add(str(message))
        else:
            usual(message, category, filename, lineno, file, line)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
