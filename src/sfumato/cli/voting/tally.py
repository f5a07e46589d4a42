"""`sfumato tally`: one of the parties that count votes together and see none."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from sfumato.cli.console import say, say_json
from sfumato.cli.parse import CommonOptions, parse


@dataclass(frozen=True, kw_only=True)
class TallyOptions(CommonOptions):
    """One tallier.

    Attributes:
        index: which of the talliers this one is, from 1.
        talliers: HOST:PORT of all of them, an odd number of at least 3; the same list everywhere.
        out: folder of its key and of what it was asked; keep it, and let nobody else read it.
        listen: the address of this machine that it takes connections at.
        certificate: of this tallier, in PEM, in the name of its host.
        key: of the certificate.
        authority: certificate of who signed those of all talliers and agents.
        without_tls: speak in the clear beyond this machine, in a network that encrypts by itself.
        wait: seconds that the other talliers may take to be there.
        once: end when the first client is gone, rather than serve until stopped.
        seed: for simulation: noise that anyone can repeat protects nobody.
    """

    index: int
    talliers: tuple[str, ...]
    out: Path
    listen: str = "127.0.0.1"
    certificate: Path | None = None
    key: Path | None = None
    authority: Path | None = None
    without_tls: bool = False
    wait: float = 60.0
    once: bool = False
    seed: int | None = None


def tally(argv: Sequence[str]) -> int:
    about = "Count votes with other talliers. Each sees shares that tell nothing; together they open the noisy answers."
    options = parse(TallyOptions, argv, command="tally", about=about)
    from sfumato.voting.tally.multi_party.addresses import Credentials  # late: --help needs no NumPy
    from sfumato.voting.tally.multi_party.tallier import Settings, serve

    credentials = Credentials(
        certificate=options.certificate,
        key=options.key,
        authority=options.authority,
        without_tls=options.without_tls,
    )
    settings = Settings(
        place=options.index,
        talliers=options.talliers,
        folder=options.out,
        listen=options.listen,
        credentials=credentials,
        wait=options.wait,
        once=options.once,
        seed=options.seed,
    )
    serve(settings, ready=(lambda line: None) if options.json else say)
    if options.json:
        say_json({"index": options.index, "talliers": list(options.talliers), "seeded": options.seed is not None})
    return 0
