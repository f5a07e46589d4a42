"""Talliers over TCP: the same answers as in the clear, secret shares, and one line where something is wrong."""

import contextlib
import datetime
import ipaddress
import itertools
import json
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats

from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.cli.main import main
from sfumato.mechanisms.discrete import discrete_gaussian, lattice_variance
from sfumato.statement.sentences import render
from sfumato.voting.multi_party import messages
from sfumato.voting.multi_party import messages as frames
from sfumato.voting.multi_party.engine import compared_bits, share_variance
from sfumato.voting.multi_party.messages import keep_alive, parse
from sfumato.voting.multi_party.peers import free_address
from sfumato.voting.multi_party.shares import FIELD, Box, top_coefficients
from sfumato.voting.multi_party.tallier import Memory, tallier_noise
from sfumato.voting.multi_party.tally import MultiPartyTally
from sfumato.voting.question import Answers, Question, added, decide
from slow import by_profile, slow_but

# Talliers as processes of a test, what they write, and the answers they must open.

SOURCE = RandomSource.from_seed(11)
Ballots = list[tuple[str, np.ndarray]]


def question(**changes) -> Question:
    return Question(**{"queries": 30, "classes": 5, "agents": 6, "units": 16, "noise_std": 0.6, **changes})


def one_hot(asked: Question, seed: int = 0, classes: Sequence[int] | None = None) -> Ballots:
    """Each agent votes for one class a query, of these where they are given."""
    rng = np.random.default_rng(seed)
    chosen = rng.choice(classes or range(asked.classes), (asked.agents, asked.queries))
    return [(f"agent {k}", np.eye(asked.classes, dtype=np.int64)[row] * asked.units) for k, row in enumerate(chosen)]


def expected(asked: Question, ballots: Ballots, token: str, *, seed: int, talliers: int = 3) -> Answers:
    """What `decide` says with the noise that talliers of this seed add."""

    def noise(of: str, std: float, shape: tuple[int, ...]) -> np.ndarray:
        sources = [RandomSource.from_seed(seed).within(f"tallier {place}") for place in range(1, talliers + 1)]
        variance = share_variance(std, talliers)
        count = int(np.prod(shape))
        return sum(discrete_gaussian(tallier_noise(each, token, of), variance, count) for each in sources).reshape(
            shape
        )

    of_answers = noise("answers", asked.noise_units, (asked.queries, asked.classes))
    confident = asked.threshold is not None
    of_threshold = noise("threshold", asked.threshold_noise_units, (asked.queries,)) if confident else None
    return decide(asked, added(asked, ballots), of_answers, of_threshold)


def same(one: Answers, other: Answers) -> bool:
    pairs = ((one.answered, other.answered), (one.labels, other.labels), (one.counts, other.counts))
    return all(a is b if a is None or b is None else np.array_equal(a, b) for a, b in pairs)


class Group:
    """Three talliers, each with a folder of its own."""

    def __init__(
        self, folder: Path, *, extra: dict[int, Sequence[str]] | None = None, common: Sequence[str] = ()
    ) -> None:
        self.folder = folder
        self.addresses = [str(free_address()) for _ in range(3)]
        self.processes: list[subprocess.Popen] = []
        self._extra, self._common = extra or {}, common

    def start(self, places: Sequence[int] = (1, 2, 3), *, ready: bool = True) -> "Group":
        for place in places:
            words = [sys.executable, "-m", "sfumato", "tally", "--index", str(place), "--talliers", *self.addresses]
            words += ["--out", str(self.folder / f"{place}"), "--seed", "3", *self._common, *self._extra.get(place, ())]
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
            self.processes.append(subprocess.Popen(words, env=environment, **pipes))
        for process in self.processes if ready else ():
            assert process.stdout is not None
            for line in process.stdout:
                if "is connected" in line:
                    break
            else:
                raise AssertionError(process.communicate()[1])
        return self

    def ends(self, *, without: Sequence[int] = (), within: float = 15) -> list[str]:
        """What each one says in the end; every one but the killed must end by itself with code 2 and one line."""
        told = []
        for place, process in enumerate(self.processes, 1):
            _, line = process.communicate(timeout=within)
            if place not in without:
                assert process.returncode == 2, line
                assert line.count("\n") == 1, line
                assert line.startswith("sfumato: ")
                told.append(line)
        return told

    def opened(self) -> list[Path]:
        """The files of answers that any of them has."""
        return [path for path in self.folder.glob("*/questions/*.json") if "answers" in json.loads(path.read_text())]


@contextlib.contextmanager
def group(folder: Path, **given) -> Iterator[Group]:
    made = Group(folder, **given)
    try:
        yield made
    finally:
        for process in made.processes:
            process.kill()
            process.communicate()


def after(seconds: float, action) -> None:
    threading.Timer(seconds, action).start()


# Talliers over TCP open what `decide` says for the same votes and the same noise.

SEED = 5


@pytest.fixture(scope="module")
def tally():
    with MultiPartyTally.local(3, seed=SEED) as found:
        yield found


def fractions(asked: Question, seed: int = 0) -> Ballots:
    """Votes that agents split among the classes."""
    rng = np.random.default_rng(seed)
    return [
        (f"agent {k}", np.floor(rng.dirichlet(np.ones(asked.classes), asked.queries) * asked.units).astype(np.int64))
        for k in range(asked.agents)
    ]


@pytest.mark.parametrize("classes", [2, 3, 5, 8])
def test_the_opened_labels_are_those_of_the_noisy_counts(tally, classes):
    asked = question(classes=classes, queries=120)
    ballots = one_hot(asked, seed=classes)
    token = f"labels {classes}"
    found = tally.open(asked, ballots, source=SOURCE, token=token)
    assert same(found, expected(asked, ballots, token, seed=SEED))


def test_of_equal_noisy_counts_the_lowest_class_wins(tally):
    asked = question(noise_std=0.5, queries=800)
    ballots = one_hot(asked, seed=9)
    found = tally.open(asked, ballots, source=SOURCE, token="ties")
    wanted = expected(asked, ballots, "ties", seed=SEED)
    assert same(found, wanted)
    counts = question(noise_std=0.5, queries=800, opens="counts")
    noisy = expected(counts, ballots, "ties", seed=SEED).counts
    assert (np.sort(noisy, axis=1)[:, -1] == np.sort(noisy, axis=1)[:, -2]).sum() > 5


@pytest.mark.parametrize("threshold", [2.0, 3.0, 100.0])
def test_a_threshold_answers_the_first_queries_that_reach_it(tally, threshold):
    asked = question(threshold=threshold, threshold_noise_std=0.5, max_answers=11)
    ballots = fractions(asked) if threshold < 3 else one_hot(asked)
    token = f"confident {threshold}"
    found = tally.open(asked, ballots, source=SOURCE, token=token)
    assert same(found, expected(asked, ballots, token, seed=SEED))
    assert found.answered.sum() <= 11
    assert found.answered.any() == (threshold < 100)


@pytest.mark.parametrize("cut", [1.5, 3.0])
def test_attributes_are_those_whose_noisy_counts_reach_the_cut(tally, cut):
    asked = question(opens="attributes", cut=cut, attributes=5)
    rng = np.random.default_rng(1)
    ballots = [(f"agent {k}", rng.integers(0, 17, (30, 5))) for k in range(6)]
    found = tally.open(asked, ballots, source=SOURCE, token=f"attributes {cut}")
    assert same(found, expected(asked, ballots, f"attributes {cut}", seed=SEED))
    assert 0 < found.labels.mean() < 1


def test_counts_are_the_noisy_sums(tally):
    asked = question(opens="counts", units=4096)
    ballots = fractions(asked)
    found = tally.open(asked, ballots, source=SOURCE, token="counts")
    assert same(found, expected(asked, ballots, "counts", seed=SEED))
    assert (found.counts < 0).any()


def test_one_hot_ballots_and_abstentions_pass_the_check(tally):
    asked = question(one_hot=True)
    ballots = one_hot(asked)
    ballots[2][1][::2] = 0
    found = tally.open(asked, ballots, source=SOURCE, token="checked")
    assert same(found, expected(asked, ballots, "checked", seed=SEED))


def test_the_same_token_gives_the_same_answers_without_asking_for_ballots(tally):
    asked = question(noise_std=30.0)
    first = tally.open(asked, one_hot(asked), source=SOURCE, token="twice")
    again = tally.open(asked, iter(()), source=SOURCE, token="twice")
    other = tally.open(asked, one_hot(asked), source=SOURCE, token="fresh")
    assert same(first, again)
    assert not same(first, other)


def test_a_seeded_tally_says_what_it_rests_on(tally):
    told = " ".join(map(render, tally.assumptions()))
    assert tally.seeded  # and so does the statement of a vote that it counts
    assert "1.5 times the variance" in told
    assert "within range" in told
    assert tally.to_json() == {"kind": "multi-party", "local": 3, "tls": False}


@pytest.mark.slow
def test_five_talliers_open_the_same():
    asked = question(one_hot=True, queries=8)
    with MultiPartyTally.local(5, seed=SEED) as five:
        found = five.open(asked, one_hot(asked), source=SOURCE, token="five")
    assert same(found, expected(asked, one_hot(asked), "five", seed=SEED, talliers=5))


def test_noise_that_is_too_fine_for_shares_is_refused_before_anything_is_sent(tally):
    with pytest.raises(InputError, match="raise units a vote above 1"):
        tally.open(question(units=1), [], source=SOURCE, token="fine")


def test_counts_that_have_no_room_in_the_field_are_refused_before_anything_is_sent(tally):
    with pytest.raises(InputError, match="use fewer units"):
        tally.open(question(units=2**40), [], source=SOURCE, token="large")


# Whatever goes wrong ends all talliers with one line, and nothing is opened.

ADDRESSES = ("127.0.0.1:7001", "127.0.0.1:7002", "127.0.0.1:7003")


class Raw:
    """A client that says what it likes."""

    def __init__(self, addresses):
        self.sockets = [socket.create_connection(each.split(":")) for each in addresses]
        self.all({"kind": "client"})

    def all(self, head, body=b""):
        for place in range(len(self.sockets)):
            self.one(place, head, body)
            messages.receive(self.sockets[place])

    def one(self, place, head, body=b""):
        self.sockets[place].sendall(messages.pack(head, body))

    def told(self, place=0):
        return messages.receive(self.sockets[place])[0]


def asking(asked, token="t"):
    return {"kind": "question", "token": token, "question": asked.to_json()}


def test_a_share_out_of_the_field_ends_all(tmp_path):
    asked = question()
    with group(tmp_path) as talliers:
        talliers.start()
        raw = Raw(talliers.addresses)
        for place in range(3):
            raw.one(place, asking(asked))
        assert raw.told()["kind"] == "cast"
        raw.one(0, {"kind": "ballot", "agent": "a"}, FIELD.to_bytes(np.full(150, FIELD.modulus, object)))
        told = talliers.ends()
        assert all("'a': a share of its ballot is out of the field" in line for line in told)
        assert raw.told()["kind"] == "stop"
        assert not talliers.opened()


def test_talliers_that_are_asked_differently_end_all(tmp_path):
    with group(tmp_path) as talliers:
        talliers.start()
        raw = Raw(talliers.addresses)
        for place in range(3):
            raw.one(place, asking(question(noise_std=0.6 + place)))
        assert all("different questions" in line for line in talliers.ends())


def test_a_ballot_out_of_range_is_refused_by_name(tmp_path):
    asked = question(one_hot=True)
    ballots = one_hot(asked)
    ballots[3][1][5] = [8, 8, 0, 0, 0]
    with group(tmp_path) as talliers:
        talliers.start()
        tally = MultiPartyTally(talliers.addresses)
        with pytest.raises(InputError, match="'agent 3': its ballot is not one vote a query"):
            tally.open(asked, ballots, source=SOURCE, token="t")
        assert all("'agent 3'" in line for line in talliers.ends())
        assert not talliers.opened()


def test_a_client_that_goes_away_ends_all(tmp_path):
    asked = question()

    def leaving():
        yield one_hot(asked)[0]
        raise KeyboardInterrupt

    with group(tmp_path) as talliers:
        talliers.start()
        with pytest.raises(KeyboardInterrupt):
            MultiPartyTally(talliers.addresses).open(asked, leaving(), source=SOURCE, token="t")
        assert all("went away" in line for line in talliers.ends())
        assert not talliers.opened()


def test_a_begun_token_takes_the_same_ballots_and_keys_only(tmp_path):
    """The talliers are killed after the question was written down; then they come back."""
    asked = question()
    with group(tmp_path) as talliers:
        talliers.start()
        MultiPartyTally(talliers.addresses).open(asked, one_hot(asked), source=SOURCE, token="t")
        begun = talliers.opened()
    assert len(begun) == 3
    assert all(path.stat().st_mode & 0o077 == 0 for path in begun)
    for path in begun:  # as if they had died before the answers were there
        known = json.loads(path.read_text())
        del known["answers"]
        path.write_text(json.dumps(known))

    def again(ballots, token="t", changed=asked, **given):
        with group(tmp_path, **given) as talliers:
            talliers.start()
            with pytest.raises(InputError) as raised:
                MultiPartyTally(talliers.addresses).open(changed, ballots, source=SOURCE, token=token)
            told = str(raised.value).removeprefix("the talliers stopped: ")
            assert all(told in line for line in talliers.ends())
            return told

    assert "other ballots were cast under this token" in again(one_hot(asked, seed=1))
    assert "another question was asked under this token" in again(one_hot(asked), changed=question(noise_std=9.0))
    assert "another key" in again(one_hot(asked), extra={2: ("--seed", "4")})
    with group(tmp_path) as talliers:
        talliers.start()
        found = MultiPartyTally(talliers.addresses).open(asked, one_hot(asked), source=SOURCE, token="t")
    assert same(found, expected(asked, one_hot(asked), "t", seed=3))


@pytest.mark.parametrize("moment", slow_but(["casting", "counting", "between"], "counting"))
def test_a_tallier_that_is_killed_opens_nothing_anywhere(tmp_path, moment):
    large = moment == "counting"
    asked = question(**({"queries": 400, "classes": 10} if large else {}))
    with group(tmp_path) as talliers:
        talliers.start()
        victim = talliers.processes[1]

        def casting():
            for place, each in enumerate(one_hot(asked)):
                if moment == "casting" and place == 3:
                    victim.kill()
                yield each
            if moment == "counting":
                after(0.7, victim.kill)

        if moment == "between":
            victim.kill()
            victim.wait()
        start = time.monotonic()
        # Killed before the question, it ends tallier 1, which the client calls first and may find gone, too.
        gone = "[12]" if moment == "between" else "2"
        with pytest.raises(InputError, match=rf"tallier {gone} .* is gone|no tallier answers at"):
            MultiPartyTally(talliers.addresses).open(asked, casting(), source=SOURCE, token="t")
        told = talliers.ends(without=[2])
        assert all("tallier 2 at" in line and "gone" in line for line in told)
        assert time.monotonic() - start < 15
        assert not talliers.opened()
        assert large == bool(list(talliers.folder.glob("*/questions/*.json")))  # killed in mid-count, indeed


@pytest.mark.slow
def test_ctrl_c_ends_one_and_the_others_say_so(tmp_path):
    with group(tmp_path) as talliers:
        talliers.start()
        os.kill(talliers.processes[0].pid, signal.SIGINT)
        assert all("tallier 1" in line and "stopped" in line for line in talliers.ends(without=[1]))
        assert talliers.processes[0].returncode == 130


def test_strangers_are_not_answered_and_disturb_no_one(tmp_path):
    asked = question()
    with group(tmp_path, common=("--once",)) as talliers:
        talliers.start()
        for content in (b"GET / HTTP/1.1\r\n\r\n", b"\xff" * 100, b"", messages.pack({"kind": "tallier", "place": 9})):
            host, port = talliers.addresses[0].split(":")
            with socket.create_connection((host, int(port))) as stranger:
                stranger.sendall(content)
        tally = MultiPartyTally(talliers.addresses)
        assert tally.open(asked, one_hot(asked), source=SOURCE, token="t").answered.all()
        tally.close()
        assert [process.wait(10) for process in talliers.processes] == [0, 0, 0]


def test_a_tallier_that_is_not_there_is_named(tmp_path):
    with group(tmp_path, common=("--wait", "2")) as talliers:
        talliers.start((1, 2), ready=False)
        told = talliers.ends(within=20)
        assert any(f"no tallier answers at {talliers.addresses[2]} within 2 s" in line for line in told)
    with pytest.raises(InputError, match="no tallier answers at"):
        MultiPartyTally(talliers.addresses).open(question(), [], source=SOURCE, token="t")


def test_a_port_in_use_a_folder_in_use_and_far_hosts_without_tls_are_refused(tmp_path, capsys):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        here = f"127.0.0.1:{taken.getsockname()[1]}"
        code = main(["tally", "--index", "1", "--talliers", here, *ADDRESSES[1:], "--out", str(tmp_path / "a")])
    assert code == 2
    assert "cannot listen at" in capsys.readouterr().err
    far = ["tally", "--index", "1", "--out", str(tmp_path / "b"), "--talliers"]
    assert main([*far, "10.0.0.1:7001", *ADDRESSES[1:]]) == 2
    assert "10.0.0.1 is not this machine" in capsys.readouterr().err
    assert main([*far, *ADDRESSES, "--listen", "0.0.0.0"]) == 2
    assert "0.0.0.0 is not this machine" in capsys.readouterr().err
    assert main([*far, *ADDRESSES[:2]]) == 2
    assert "odd number of at least 3, got 2" in capsys.readouterr().err
    held = Memory(tmp_path / "c", seed=None, place=1)
    with pytest.raises(InputError, match="folder of a tallier that runs"):
        Memory(tmp_path / "c", seed=None, place=2)
    assert (tmp_path / "c" / "tallier.key").stat().st_mode & 0o077 == 0
    assert held.source.kind == "os"
    with pytest.raises(InputError, match="not this machine"):
        MultiPartyTally(["example.org:1", *ADDRESSES[1:]])
    with pytest.raises(InputError, match="odd number of at least 3, got 4"):
        MultiPartyTally.local(4)


def test_a_connection_that_is_closed_already_is_no_error():
    closed = socket.socket()
    closed.close()
    keep_alive(closed)
    keep_alive(None)  # what asyncio gives for a transport whose other end hung up
    with socket.socket() as connection:
        keep_alive(connection)
        assert connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)
        assert connection.getsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE)


# What one tallier is sent tells nothing of the votes; TLS lets in whom the authority signed, under its own name.

_LENGTHS = struct.Struct("<II")


class Tap:
    """Stands before the third tallier, whom all others call, and writes down what is sent to it."""

    def __init__(self, group: Group) -> None:
        self._to = ("127.0.0.2", int(group.addresses[2].split(":")[1]))
        self.heard: list[bytearray] = []
        self._server = socket.create_server(("127.0.0.1", self._to[1]))
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                caller, _ = self._server.accept()
            except OSError:
                return
            called = self._called()
            self.heard.append(bytearray())
            for one, other, kept in ((caller, called, self.heard[-1]), (called, caller, bytearray())):
                threading.Thread(target=self._pump, args=(one, other, kept), daemon=True).start()

    def _called(self) -> socket.socket:
        while True:
            try:
                return socket.create_connection(self._to)
            except OSError:  # it does not listen yet
                time.sleep(0.05)

    @staticmethod
    def _pump(one: socket.socket, other: socket.socket, kept: bytearray) -> None:
        try:
            while part := one.recv(1 << 16):
                kept += part
                other.sendall(part)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            pass

    def numbers(self, kind: str) -> list[np.ndarray]:
        """The bodies of all messages of a kind, as numbers of the field."""
        found = []
        for content in map(bytes, self.heard):
            while len(content) >= _LENGTHS.size:
                head, body = _LENGTHS.unpack(content[: _LENGTHS.size])
                start = _LENGTHS.size + head
                if frames.parsed(content[_LENGTHS.size : start])["kind"] == kind:
                    found.append(FIELD.numbers(FIELD.limbs_of(content[start : start + body])))
                content = content[start + body :]
        return found

    def close(self) -> None:
        self._server.close()


def test_what_one_tallier_is_sent_does_not_depend_on_the_votes(tmp_path):
    """All for the first class against all for the last; each test has a rate of false alarms of 1e-4."""
    asked = question(queries=60, one_hot=True)
    shares, messages = [], []
    for chosen in (0, 4):
        with group(tmp_path / str(chosen), extra={3: ("--listen", "127.0.0.2")}) as talliers:
            tap = Tap(talliers)
            talliers.start()
            ballots = one_hot(asked, classes=[chosen])
            found = MultiPartyTally(talliers.addresses).open(asked, ballots, source=SOURCE, token="t")
            assert (found.labels == chosen).all()
            shares.append(np.concatenate(tap.numbers("ballot")))
            messages.append(tap.numbers("mpc"))
            tap.close()
    for numbers in shares:
        assert len(numbers) == 6 * 60 * 5
        assert stats.kstest((numbers / FIELD.modulus).astype(float), "uniform").pvalue > 1e-4
        for bits in (numbers & 15, numbers >> 85):
            assert stats.chisquare(np.bincount(bits.astype(int), minlength=16)).pvalue > 1e-4
    assert stats.ks_2samp(*[each.astype(float) for each in shares]).pvalue > 1e-4
    lengths = [sorted(map(len, each)) for each in messages]
    assert lengths[0] == lengths[1]
    assert sum(lengths[0]) > 10_000
    one, other = (np.concatenate(each) for each in messages)
    assert stats.ks_2samp(one.astype(float), other.astype(float)).pvalue > 1e-4
    low = [np.bincount((each & 15).astype(int), minlength=16) for each in (one, other)]
    assert stats.chi2_contingency(low).pvalue > 1e-4


def signed(folder: Path, name: str, authority, host: str = "127.0.0.1") -> list[str]:
    """Options of TLS for a party that an authority (key, certificate) signed."""
    key = ec.generate_private_key(ec.SECP256R1())
    path = write(folder, name, key, certificate_of(name, key, authority, [x509.IPAddress(ipaddress.ip_address(host))]))
    return ["--certificate", f"{path}.crt", "--key", f"{path}.key", "--authority", f"{folder / 'authority'}.crt"]


def certificate_of(name, key, authority, hosts=()):
    now = datetime.datetime.now(datetime.UTC)
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    signer, issuer = (key, subject) if authority is None else (authority[0], authority[1].subject)
    made = x509.CertificateBuilder().subject_name(subject).issuer_name(issuer).public_key(key.public_key())
    made = made.serial_number(x509.random_serial_number()).not_valid_before(now - datetime.timedelta(days=1))
    made = made.not_valid_after(now + datetime.timedelta(days=1))
    made = made.add_extension(x509.BasicConstraints(ca=authority is None, path_length=None), critical=True)
    if hosts:
        made = made.add_extension(x509.SubjectAlternativeName(hosts), critical=False)
    identifier = x509.SubjectKeyIdentifier.from_public_key(key.public_key())
    made = made.add_extension(identifier, critical=False)
    of_signer = x509.AuthorityKeyIdentifier.from_issuer_public_key(signer.public_key())
    made = made.add_extension(of_signer, critical=False)
    return made.sign(signer, hashes.SHA256())


def write(folder: Path, name: str, key, certificate) -> Path:
    pem = serialization.Encoding.PEM
    plain = serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    (folder / f"{name}.key").write_bytes(key.private_bytes(pem, *plain))
    (folder / f"{name}.crt").write_bytes(certificate.public_bytes(pem))
    return folder / name


@pytest.fixture
def authority(tmp_path):
    key = ec.generate_private_key(ec.SECP256R1())
    certificate = certificate_of("authority", key, None)
    write(tmp_path, "authority", key, certificate)
    return key, certificate


def credentials(words: list[str]) -> dict[str, Path]:
    return {name[2:]: Path(value) for name, value in zip(words[::2], words[1::2])}


def test_with_tls_signed_parties_vote_and_others_do_not(tmp_path, authority):
    asked = question(one_hot=True)
    extra = {place: signed(tmp_path, f"tallier{place}", authority) for place in (1, 2, 3)}
    agents = credentials(signed(tmp_path, "agents", authority))
    with group(tmp_path / "talliers", extra=extra) as talliers:
        talliers.start()
        with pytest.raises(InputError, match=r"no tallier answers|is gone"):
            MultiPartyTally(talliers.addresses).open(asked, [], source=SOURCE, token="t")
        other = ec.generate_private_key(ec.SECP256R1())
        (tmp_path / "elsewhere").mkdir()
        stranger = signed(tmp_path / "elsewhere", "agents", (other, certificate_of("authority", other, None)))
        given = {**credentials(stranger), "authority": agents["authority"]}
        with pytest.raises(InputError, match=r"no tallier answers|is gone"):
            MultiPartyTally(talliers.addresses, **given).open(asked, [], source=SOURCE, token="t")
        tally = MultiPartyTally(talliers.addresses, **agents)
        found = tally.open(asked, one_hot(asked), source=SOURCE, token="t")
        assert same(found, expected(asked, one_hot(asked), "t", seed=3))
        assert tally.to_json()["tls"]


def test_a_tallier_whose_certificate_is_for_another_host_is_refused(tmp_path, authority):
    extra = {place: signed(tmp_path, f"tallier{place}", authority) for place in (1, 3)}
    extra[2] = signed(tmp_path, "tallier2", authority, host="127.0.0.9")
    with group(tmp_path / "talliers", extra=extra, common=("--wait", "4")) as talliers:
        talliers.start(ready=False)
        assert any("certificate" in line for line in talliers.ends())


def test_a_tallier_starts_without_torch():
    code = "import sys, sfumato.voting.multi_party.tallier; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# Shares hide what they share, and one tallier's box refuses what is no share of a ballot.

P = FIELD.modulus


def split(values, parties=3, label="x"):
    stream = RandomSource.from_seed(1).stream("ballot shares", label)
    return FIELD.split(np.asarray(values, np.int64), parties, (parties - 1) // 2, stream)


def joined(points: dict[int, np.ndarray]) -> np.ndarray:
    """Lagrange at 0, written down anew."""
    total = 0
    for x, share in points.items():
        weight = 1
        for other in points:
            if other != x:
                weight = weight * -other * pow(x - other, -1, P) % P
        total = total + share * weight
    return total % P


@settings(deadline=None, max_examples=by_profile(30))
@given(st.lists(st.integers(0, 2**62), min_size=1, max_size=9), st.sampled_from([3, 5, 7]))
def test_any_majority_of_shares_gives_the_numbers_back(values, parties):
    shares = [FIELD.numbers(each) for each in split(values, parties)]
    for chosen in itertools.combinations(range(parties), (parties + 1) // 2):
        assert joined({k + 1: shares[k] for k in chosen}).tolist() == values


@pytest.mark.parametrize("place", [0, 1, 2])
def test_one_share_is_uniform_in_the_field(place):
    """Chi-square of the highest and the lowest five bits; false alarms 1e-4."""
    numbers = FIELD.numbers(split(np.full(20_000, 16))[place])
    for bits in (numbers >> 84, numbers & 31):
        assert stats.chisquare(np.bincount(bits.astype(int), minlength=32)).pvalue > 1e-4


@settings(deadline=None)
@given(st.lists(st.integers(0, 2**62), min_size=3, max_size=3))
def test_limbs_that_grew_are_reduced_as_whole_numbers_are(limbs):
    value = sum(limb << (32 * k) for k, limb in enumerate(limbs))
    reduced = FIELD.reduced(np.array([limbs], np.uint64))
    assert FIELD.numbers(reduced)[0] == value % P


def test_numbers_travel_unchanged_and_the_modulus_is_out_of_the_field():
    numbers = np.array([0, 1, 2**64 - 1, P - 1], object)
    assert (FIELD.numbers(FIELD.limbs_of(FIELD.to_bytes(numbers))) == numbers).all()
    wrong = FIELD.limbs_of(FIELD.to_bytes(np.array([P - 1, P, 2**90], object)))
    assert FIELD.within(wrong).tolist() == [True, False, False]


def boxes(asked, parties=3):
    return [Box(asked, FIELD, place=k, talliers=parties, coins=bytes(32)) for k in range(1, parties + 1)]


def cast(ballots, asked, parties=3):
    filled = boxes(asked, parties)
    for name, ballot in ballots:
        for box, share in zip(filled, split(ballot.reshape(-1), parties, name)):
            box.add(name, share.tobytes())
    return filled


def checked(filled) -> list[int]:
    """The value that is opened as 0 or not, for each agent."""
    weights = top_coefficients(P, len(filled))[0]
    return [sum(w * box.seen[name] for w, box in zip(weights, filled)) % P for name in filled[0].seen]


@pytest.mark.parametrize("parties", [3, 5])
def test_boxes_hold_shares_of_the_sum_and_pass_ballots_in_range(parties):
    asked = question(one_hot=True)
    ballots = one_hot(asked)
    ballots[1][1][3:7] = 0
    filled = cast(ballots, asked, parties)
    shares = {k: box.share() for k, box in enumerate(filled, 1)}
    assert joined(shares).tolist() == sum(b for _, b in ballots).reshape(-1).tolist()
    assert checked(filled) == [0] * 6


@pytest.mark.parametrize(
    "spoil",
    [
        lambda b: b.__setitem__((0, 0), 3 * 16),
        lambda b: b.__setitem__((4, slice(None)), 16),
        lambda b: b.__setitem__((7, 2), 1),
        lambda b: b.__setitem__(0, [8, 8, 0, 0, 0]),
    ],
)
def test_the_check_finds_every_ballot_that_is_not_one_vote(spoil):
    asked = question(one_hot=True)
    ballots = one_hot(asked)
    spoil(ballots[2][1])
    assert [value != 0 for value in checked(cast(ballots, asked))] == [False, False, True, False, False, False]


@pytest.mark.parametrize("parties", [3, 5])
def test_the_check_finds_shares_that_lie_on_no_polynomial(parties):
    """Chosen so that v(v − u) is 0 at 0 all the same, for the polynomial of degree m − 1 through all shares."""
    asked = question(one_hot=True, agents=2, queries=1, classes=2)
    weights, units, rng = top_coefficients(P, parties)[0], 16, np.random.default_rng(0)
    while True:  # the last share is a root of a quadratic equation, which half of all have
        first = [int(x) for x in rng.integers(1, 2**60, parties - 1)]
        rest = sum(w * s * (s - units) for w, s in zip(weights, first)) * pow(weights[-1], -1, P)
        square = (units * units // 4 - rest) % P
        root = pow(square, (P + 1) // 4, P)
        if root * root % P == square:
            break
    shares = [*first, (units // 2 + root) % P]
    assert sum(w * s * (s - units) for w, s in zip(weights, shares)) % P == 0
    filled = boxes(asked, parties)
    for box, share in zip(filled, shares):
        box.add("agent", FIELD.to_bytes(np.array([share, 0], object)))
    assert checked(filled)[0] != 0


def test_a_box_refuses_what_is_no_share_of_a_ballot():
    asked = question(agents=2)
    box = boxes(asked)[0]
    share = split(one_hot(asked)[0][1].reshape(-1))[0]
    box.add("a", share.tobytes())
    with pytest.raises(InputError, match="'a' votes twice"):
        box.add("a", share.tobytes())
    with pytest.raises(InputError, match="has 1800 bytes, got 1788"):
        box.add("b", share[1:].tobytes())
    with pytest.raises(InputError, match="out of the field"):
        box.add("b", FIELD.to_bytes(np.full(150, P, object)))
    box.add("b", share.tobytes())
    with pytest.raises(InputError, match="'c' is one too many"):
        box.add("c", share.tobytes())


def test_a_box_has_the_digest_of_what_it_was_sent_in_any_order():
    asked = question()
    ballots = one_hot(asked)
    assert cast(ballots, asked)[0].digest == cast(ballots[::-1], asked)[0].digest
    ballots[0][1][0] = np.roll(ballots[0][1][0], 1)
    assert cast(one_hot(asked), asked)[0].digest != cast(ballots, asked)[0].digest


@pytest.mark.parametrize("talliers", [3, 5, 7])
def test_the_noise_of_the_honest_talliers_is_what_is_accounted(talliers):
    honest = talliers - (talliers - 1) // 2
    assert share_variance(40.0, talliers) * honest == lattice_variance(40.0)


def test_compared_numbers_have_room_for_all_counts_and_thirty_std_of_noise():
    asked = question(agents=200, noise_std=25.0)
    assert 2 ** (compared_bits(asked, 3) - 1) > 200 * 16 + 2 * 30 * 400 * 1.5**0.5


@pytest.mark.parametrize(
    ("talliers", "told"),
    [
        (["a:1", "b:2"], "odd number of at least 3, got 2"),
        (["a:1", "b:2", "c:3", "d:4"], "odd number of at least 3, got 4"),
        (["a:1", "b:2", "c"], "HOST:PORT, got 'c'"),
        (["a:1", "b:2", "c:99999"], "HOST:PORT, got 'c:99999'"),
        (["a:1", "b:2", "b:2"], "same address"),
    ],
)
def test_addresses_that_are_no_group_are_refused(talliers, told):
    with pytest.raises(InputError, match=told):
        parse(talliers)
