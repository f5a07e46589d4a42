"""What one tallier is sent tells nothing of the votes; TLS lets in whom the authority signed, under its own name."""

import datetime
import ipaddress
import socket
import struct
import subprocess
import sys
import threading
import time
from pathlib import Path

import numpy as np
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from scipy import stats

from sfumato._check import InputError
from sfumato.voting.multi_party import messages as frames
from sfumato.voting.multi_party.shares import FIELD
from sfumato.voting.multi_party.tally import MultiPartyTally
from talliers import SOURCE, Group, expected, group, one_hot, question, same

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
