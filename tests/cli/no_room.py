"""A command on a disk where no file may grow beyond so many bytes: main([BYTES, COMMAND, ...])."""

import resource

from sfumato.cli import main as program


def main(words: list[str]) -> int:
    """The exit code of the command."""
    size = int(words[0])
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    return program.main(words[1:])
