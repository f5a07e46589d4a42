"""`sfumato`: finds the command, runs it, and turns every mistake into one line.

Exit codes: 0 done, 2 a mistake in what was given (one line on stderr, nothing lost), 130 stopped by a signal.
A command's module is imported when it is called, so that `sfumato --help` and the accounting commands answer
without loading torch.
"""

import importlib
import io
import os
import sys
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version
from pathlib import Path
from typing import TextIO

from sfumato._check import InputError
from sfumato.algorithms import ALGORITHMS
from sfumato.cli.console import complain, leads, notify, table


@dataclass(frozen=True)
class Command:
    """Where a command is and what it does.

    Attributes:
        module: its file in this package.
        function: takes the arguments behind the command's name and gives the exit code.
        summary: one line for the overview.
        first: a first argument of the function, where one function serves several commands.
    """

    module: str
    function: str
    summary: str
    first: str | None = None


COMMANDS = {
    **{name: Command("train", "train", each.summary, name) for name, each in ALGORITHMS.items()},
    "check-model": Command("check_model", "check_model", "how each layer of a model is covered, and what is refused"),
    "embed": Command("embed", "embed", "a trained model and a data set → a Parquet file of embeddings"),
    "report": Command("report", "report", "one self-contained HTML page about one run or several"),
    "close": Command("close", "close", "end a run that was stopped, and delete its key"),
    "account": Command("account", "account", "what a run costs: epsilon from noise, sampling and steps"),
    "compare": Command("compare", "compare", "what runs cost under one convention: same delta, same neighbours"),
    "calibrate": Command("calibrate", "calibrate", "the noise, the steps or the sampling rate that meet a budget"),
    "extrapolate": Command("extrapolate", "extrapolate", "what more computation and more people buy in privacy"),
    "ledger show": Command("ledger", "ledger_show", "what a ledger holds, what it cost, and what its budget leaves"),
    "ledger verify": Command("ledger", "ledger_verify", "whether a ledger is whole: nothing changed, removed or moved"),
    "ledger merge": Command("ledger", "ledger_merge", "ledgers of the same records as one; each release counts once"),
    "data pack": Command("data.pack", "data_pack", "decode a folder of pictures once into a memory-mapped store"),
    "data glyphs": Command("data.glyphs", "data_glyphs", "write the embedded default data as a store"),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command.

    Args:
        argv: the words behind `sfumato`; None takes those of the process.

    Returns:
        the exit code.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    if isinstance(sys.stdout, io.TextIOWrapper):
        sys.stdout.reconfigure(errors="replace")  # a terminal without ε shall not end a run
    with _short_warnings():
        try:
            code = _dispatch(words)
            sys.stdout.flush()
            return code
        except InputError as error:
            complain(str(error))
        except SystemExit as stop:  # help was printed
            return int(stop.code or 0)
        except BrokenPipeError:  # the reader of our output has seen enough
            os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
            return 0
        except OSError as error:
            complain(_reason(error))
        except (MemoryError, RuntimeError) as error:
            if not _memory_ran_out(error):
                raise
            complain("memory ran out; lower what makes the model or the records large (sizes, classes), or make room")
        except KeyboardInterrupt:
            notify("stopped")
            return 130
    return 2


def _dispatch(words: list[str]) -> int:
    for count in (1, 2):
        command = COMMANDS.get(" ".join(words[:count]))
        if command:
            return _function(command)(words[count:])
    if words in (["--version"], ["version"]):
        print(f"sfumato {version('sfumato')}")
        return 0
    groups = {name.split()[0] for name in COMMANDS if " " in name}
    group = words[0] if words and words[0] in groups else ""
    if not words or words[-1] in ("-h", "--help") or words == [group]:
        _overview(f"{group} " if group else "")
        return 0
    given = " ".join(words[: 2 if group else 1])
    raise InputError(f"there is no command {given!r}; the commands are {', '.join(COMMANDS)}")


def _function(command: Command) -> Callable[[list[str]], int]:
    function = getattr(importlib.import_module(f"sfumato.cli.{command.module}"), command.function)
    return function if command.first is None else partial(function, command.first)


def _overview(prefix: str) -> None:
    if leads():
        print(
            "usage: sfumato COMMAND [options]\n\nTrain on records that belong to people, and say what it cost them.\n"
        )
        chosen = {name: command for name, command in COMMANDS.items() if name.startswith(prefix)}
        table(["command", "what it does"], [[name, command.summary] for name, command in chosen.items()])
        print("\nsfumato COMMAND --help explains every option. A first run: sfumato fedemb --data glyphs --epsilon 8")


def _reason(error: OSError) -> str:
    """One line for an error of the operating system."""
    what = error.strerror or str(error) or type(error).__name__
    where = f"{error.filename}: " if error.filename is not None else ""
    return f"{where}{what}; check the path, its permissions and the room on the disk, then run it again"


def _memory_ran_out(error: Exception) -> bool:
    """Whether an error says so, in NumPy's or torch's words."""
    return isinstance(error, MemoryError) or any(
        words in str(error) for words in ("can't allocate memory", "out of memory", "not enough memory")
    )


@contextmanager
def _short_warnings() -> Iterator[None]:
    """Our own warnings in one line, each once; those of other packages as usual."""
    ours = str(Path(__file__).resolve().parents[1])
    usual = warnings.showwarning
    told: set[str] = set()

    def show(
        message: Warning | str,
        category: type[Warning],
        filename: str,
        lineno: int,
        file: TextIO | None = None,
        line: str | None = None,
    ) -> None:
        if str(Path(filename).resolve()).startswith(ours) and category is UserWarning:
            if str(message) not in told:
                notify(f"warning: {message}")
            told.add(str(message))
        else:
            usual(message, category, filename, lineno, file, line)

    with warnings.catch_warnings():
        warnings.showwarning = show
        yield
