"""`sfumato --completion SHELL`: a script that completes commands, options and their values, by tyro."""

import contextlib
import io
from collections.abc import Sequence

from tyro.extras import SubcommandApp

from sfumato._check import InputError, one_of
from sfumato.cli.commands import COMMANDS
from sfumato.cli.console import say
from sfumato.cli.help import MARKERS

_SHELLS = ("bash", "zsh", "fish")


def print_completion(words: Sequence[str]) -> None:
    """Print the script of the shell that is named.

    Raises:
        InputError: not exactly one shell that there is a script for.
    """
    if len(words) != 1:
        raise InputError("which shell? give sfumato --completion bash, zsh or fish")
    one_of(_SHELLS, shell=words[0])
    app, groups = SubcommandApp(), dict[str, SubcommandApp]()
    for name, command in COMMANDS.items():
        group, _, rest = name.partition(" ")
        if rest and group in COMMANDS:  # a word is completed as a command or as a group of commands, not as both
            continue
        if rest and group not in groups:
            groups[group] = SubcommandApp()
            app.command(groups[group], name=group)
        (groups[group] if rest else app).command(command.kind(), name=rest or group, help=command.summary)
    script = io.StringIO()
    with contextlib.redirect_stdout(script), contextlib.suppress(SystemExit):
        app.cli(prog="sfumato", args=["--tyro-write-completion", words[0], "-"], config=MARKERS)
    say(script.getvalue().rstrip("\n"))
