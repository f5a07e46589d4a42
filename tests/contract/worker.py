"""Runs that end badly, and runs of several processes: main(["kill" or "team", FOLDER, NAME, …])

kill: each run is a process of its own that SIGKILL ends in round 4, when its noise is asked for, with a round since the
last checkpoint; "toy-between-phases" dies before the first round of its second phase. team: the runs one after another
in the same processes.
"""

import os
import signal
from pathlib import Path

import torch
import torch.distributed

from contract import toy
from contract.specimen import network, vectors
from contract.specimens import fit
from sfumato.mechanisms import Gaussian
from sfumato.mechanisms.correlated import Correlated

DEADLY_ROUND = 3


def die(*_: object) -> None:
    """As when the machine is switched off."""
    os.kill(os.getpid(), signal.SIGKILL)


def deadly(release):
    """The same release, but that of one round ends the process before there is any noise."""

    def dying(mechanism, total, *, round, **rest):
        if round == DEADLY_ROUND:
            die()
        return release(mechanism, total, round=round, **rest)

    return dying


def start(name: str, out: Path) -> None:
    """A run that will not end."""
    for mechanism in (Gaussian, Correlated, toy.EchoingNoise):
        mechanism.release = deadly(mechanism.release)
    if name == "toy-between-phases":
        toy.Loop.rounds = die
    if name.startswith("toy"):
        toy.noisy_mean(vectors(), out, seed=3)
    else:
        fit(name, out, model=network(dropout=0.2))


def kill(folder: Path, names: list[str]) -> None:
    """Each in a child process; nothing of torch has run here, so a fork is safe."""
    torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=1.0)  # loads what every child would load for itself
    for name in names:
        child = os.fork()
        if child == 0:
            start(name, folder / name)
            os._exit(1)
        _, status = os.waitpid(child, 0)
        print(name, os.WTERMSIG(status) if os.WIFSIGNALED(status) else f"exit {os.WEXITSTATUS(status)}", flush=True)


def team(folder: Path, names: list[str]) -> None:
    """Each by all processes."""
    torch.distributed.init_process_group("gloo")
    for name in names:
        if name == "toy":
            toy.noisy_mean(vectors(), folder / name, seed=3)
        else:
            fit(name, folder / name)
        print(name, flush=True)
    torch.distributed.destroy_process_group()
    threads = [file.read_text().strip() for file in Path("/proc/self/task").glob("*/comm")]
    assert not [name for name in threads if "gloo" in name], "a thread of the group may abort the process at its end"


def main(words: list[str]) -> int:
    """As the first word says."""
    torch.set_num_threads(1)
    {"kill": kill, "team": team}[words[0]](Path(words[1]), words[2:])
    return 0
