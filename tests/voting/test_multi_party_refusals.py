"""Whatever goes wrong ends all talliers with one line, and nothing is opened."""

import json
import os
import signal
import socket
import time

import numpy as np
import pytest

from sfumato._check import InputError
from sfumato.cli.main import main
from sfumato.voting.multi_party import messages
from sfumato.voting.multi_party.messages import keep_alive
from sfumato.voting.multi_party.shares import FIELD
from sfumato.voting.multi_party.tallier import Memory
from sfumato.voting.multi_party.tally import MultiPartyTally
from slow import slow_but
from talliers import SOURCE, after, expected, group, one_hot, question, same

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
        with pytest.raises(InputError, match=r"tallier 2 .* is gone|no tallier answers at"):
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


def test_strangers_are_not_answered_and_disturb_nobody(tmp_path):
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
