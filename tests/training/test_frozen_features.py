"""Frozen features: where a model is cut, that a row follows from one record alone, and what is kept of records."""

import errno
import functools
import os
import stat
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from sfumato import data, models
from sfumato._check import InputError
from sfumato.training import frozen_features as cache_module
from sfumato.training.frozen_features import PrefixCache, cut_for, holds_more, split
from slow import one_in

# A model is cut before the first trained stage, and what lies before must be a fixed function of one record.

INPUTS = torch.randn(6, 1, 8, 8, generator=torch.Generator().manual_seed(0))


def network(*first: nn.Module) -> nn.Sequential:
    """Some layers for 8×8 pictures, and a trained dense layer behind them: the last one."""
    front = nn.Sequential(*first, nn.Flatten())
    with torch.no_grad():
        width = front.eval()(INPUTS).shape[1]
    return nn.Sequential(*front.train(), nn.Linear(width, 3))


def cut_at(model: nn.Module, trainable: str = "last") -> int:
    return len(split(model, trainable, INPUTS).prefix.stages())


def test_the_prefix_is_the_longest_run_of_frozen_stages():
    model = network(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Conv2d(4, 4, 3), nn.ReLU(), nn.MaxPool2d(2))
    assert cut_at(model) == 6
    assert cut_at(model, "last_blocks:2") == 2
    assert cut_at(model, r"^2\.bias") == 2


@pytest.mark.parametrize("name", one_in(2, ["squeezenet", "resnet20", "mobilenet_v2", "lenet"]))
def test_the_two_halves_are_the_whole(name):
    model, inputs = models.backbone(name, embedding_dim=4, input_shape=(32, 32, 3)), torch.randn(3, 3, 32, 32)
    halves = split(model, "last_blocks:1+last", inputs)
    with torch.no_grad():
        between = halves.prefix(inputs)
        assert tuple(between.shape[1:]) == halves.shape
        assert torch.equal(halves.rest.eval()(between), model.eval()(inputs))
    prefix, rest = set(halves.prefix.state_dict()), set(halves.rest.state_dict())
    assert prefix | rest == set(model.state_dict())
    assert not prefix & rest
    assert set(halves.frozen()) == prefix


def test_the_whole_gets_the_values_of_a_trained_copy_of_the_rest_and_nothing_else():
    model = network(nn.Conv2d(1, 4, 3), nn.ReLU())
    halves = split(model, "last", INPUTS)
    with torch.no_grad():
        halves.rest.get_submodule("3").bias.fill_(7.0)
    whole = halves.joined(halves.rest)
    assert type(whole) is nn.Sequential
    assert not whole.training
    assert torch.equal(whole[0].weight, model[0].weight)
    assert whole[3].bias.eq(7.0).all()
    assert not model[3].bias.eq(7.0).any()


def test_dropout_before_the_trained_part_ends_the_prefix():
    model = network(nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Dropout(0.5), nn.Conv2d(4, 4, 3))
    assert cut_at(model) == 2
    with pytest.raises(InputError, match="the first stage, 0, draws random numbers"):
        cut_at(network(nn.Dropout(0.5), nn.Conv2d(1, 4, 3)))


def test_a_layer_that_does_something_else_while_training_ends_the_prefix():
    class Louder(nn.Module):
        def forward(self, x):
            return 2 * x if self.training else x

    assert cut_at(network(nn.Conv2d(1, 4, 3), Louder(), nn.ReLU())) == 1


def test_adapters_are_trained_from_their_layer_on():
    model = models.squeezenet(4, stem="small")
    models.add_lora(model, rank=2, layers="features.10")
    halves = split(model, "lora|embedding", torch.randn(2, 3, 32, 32))
    assert halves.prefix.stages()[-1].name == "features.9"


def test_weights_that_a_later_trained_layer_shares_are_not_frozen():
    layer = nn.Conv2d(1, 1, 3, padding=1)
    model = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), layer, nn.ReLU(), layer, nn.Flatten())
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    assert cut_at(model, "all") == 1


class Mixing(nn.Module):
    def forward(self, x):
        return x - x.mean(0, keepdim=True)


class Counting(nn.Module):
    calls = 0

    def forward(self, x):
        self.calls += 1
        return x


class Remembering(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("level", torch.zeros(()))

    def forward(self, x):
        self.level.copy_(x.mean().detach())
        return x


class Listing(nn.Module):
    """Keeps what it saw in a list, which no comparison of attributes tells."""

    def __init__(self):
        super().__init__()
        self.seen = []

    def forward(self, x):
        self.seen.append(float(x.detach().sum()))
        return x + 0.01 * len(self.seen)


class Bare(nn.Module):
    """Trains a parameter that lies in none of its stages."""

    def __init__(self):
        super().__init__()
        self.conv, self.scale = nn.Conv2d(1, 2, 3), nn.Parameter(torch.ones(()))

    def forward(self, x):
        return self.conv(x).flatten(1)

    def stages(self):
        return (models.Stage("conv", ("conv",)), models.Stage("flat", (), lambda x: x.flatten(1)))


class Undeclared(nn.Module):
    """Its last stage computes with the network that told it, and keeps what it sees there."""

    def __init__(self):
        super().__init__()
        self.conv, self.last = nn.Conv2d(1, 2, 3), nn.LazyLinear(3)
        self.register_buffer("seen", torch.zeros(()))
        self(INPUTS)

    def forward(self, x):
        return self.kept(self.last(self.conv(x).flatten(1)))

    def kept(self, x):
        if x.requires_grad:
            self.seen.add_(x.detach().sum())
        return x

    def stages(self):
        return (
            models.Stage("conv", ("conv",)),
            models.Stage("last", ("last",), lambda x, last: last(x.flatten(1))),
            models.Stage("kept", (), lambda x: self.kept(x)),
        )


def tied() -> nn.Sequential:
    """The frozen second layer and the one behind it are one weight, which has the name of the frozen one."""
    model = nn.Sequential(nn.Flatten(), nn.Linear(64, 4), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 2))
    model[3].weight = model[2].weight
    return model


def everywhere_adapted() -> nn.Sequential:
    model = network(nn.Conv2d(1, 4, 3))
    models.add_lora(model, rank=1)
    return model


REFUSED = {
    "tied": (tied(), "^3|^4", r"parameter 3\.weight has several names.*chooses others after the cut"),
    "undeclared": (Undeclared(), "last", "the stage kept of this Undeclared computes with modules or tensors"),
    "everything trained": (network(nn.Conv2d(1, 4, 3)), "all", r"nothing is frozen before.*0\.weight.*last_blocks:2"),
    "everything adapted": (
        everywhere_adapted(),
        "lora",
        r"nothing is frozen before.*0\.lora_a.*give adapters to later layers only .*--lora-layers",
    ),
    "batch norm": (network(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), "last", "BatchNorm2d.*couples"),
    "mixed": (network(nn.Conv2d(1, 4, 3), Mixing()), "last", "give a record other features alone than among others"),
    "counted": (network(nn.Conv2d(1, 4, 3), Counting()), "last", "keep state of records .calls changes"),
    "remembered": (network(nn.Conv2d(1, 4, 3), Remembering()), "last", r"keep state.*1\.level changes"),
    "of another shape": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 4)),
        "last",
        "fails on inputs of shape",
    ),
    "no stages": (nn.Bilinear(2, 2, 2), "all", "Bilinear does not list its stages"),
    "outside": (Bare(), "scale", "no stage of this Bare has a trained parameter"),
    "no such parameter": (network(nn.Conv2d(1, 4, 3)), "embedding", "names no parameter to train"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_cut_is_refused_and_says_why(name):
    model, trainable, message = REFUSED[name]
    before = {key: value.clone() for key, value in model.state_dict().items()}
    with pytest.raises(InputError, match=message):
        split(model, trainable, INPUTS)
    assert all(torch.equal(value, before[key]) for key, value in model.state_dict().items())


def test_a_stage_holds_no_network_behind_its_back():
    layer, weight = nn.Linear(2, 2), torch.ones(2)

    class Holder:
        def __init__(self):
            self.inner = layer

        def run(self, x):
            return self.inner(x)

        def __call__(self, x):
            return self.inner(x)

    more = [
        layer,
        layer.forward,
        Holder(),
        Holder().run,
        functools.partial(lambda x, by: by(x), by=layer),
        lambda x, by=(layer,): by[0](x),
        lambda x: x * weight,
        lambda x: (lambda y: layer(y))(x),
    ]
    scale = 2.0
    assert all(map(holds_more, more))
    assert not any(map(holds_more, [lambda x, by: by(x), lambda x: x * scale, torch.relu, models.Stage("a").run]))


def test_the_whole_is_put_together_from_what_it_was_when_it_was_cut():
    found = split(network(nn.Conv2d(1, 4, 3)), "last", INPUTS)
    before = {name: value.clone() for name, value in found.whole.state_dict().items()}
    with torch.no_grad():
        next(found.whole.parameters()).add_(1.0)
    found.whole.late = "what a record left"
    whole = found.joined(found.rest)
    assert all(torch.equal(value, before[name]) for name, value in whole.state_dict().items())
    assert not hasattr(whole, "late")


def test_what_depends_on_what_was_seen_before_is_refused_or_not_kept():
    """A list is not compared, but what it does to the outputs shows."""
    same = r"draws random|do not give its output|the same records|went through before"
    with pytest.raises(InputError, match=same):
        split(network(Listing(), nn.Conv2d(1, 4, 3)), "last", INPUTS)


def test_a_hook_that_no_stage_reports_of_is_refused():
    model = network(nn.Conv2d(1, 4, 3), nn.ReLU())
    model.register_forward_hook(lambda module, inputs, output: output + 1)
    with pytest.raises(InputError, match="do not give its output"):
        split(model, "last", INPUTS)


def test_norms_that_follow_public_inputs_are_refused():
    model = models.resnet20_classifier(4, 1, normalisation="public_batch", public_inputs=torch.randn(8, 1, 8, 8))
    with pytest.raises(InputError, match="follow public inputs"):
        split(model, "last", INPUTS)


def test_what_changes_later_is_seen_when_records_go_through():
    halves = split(network(nn.Conv2d(1, 4, 3)), "last", INPUTS)
    halves.refuse_touched()
    with torch.no_grad():
        halves.prefix.get_submodule("0").weight[0, 0, 0, 0] += 1.0
    with pytest.raises(InputError, match=r"0\.weight changes"):
        halves.refuse_touched()


def test_the_digest_reports_weights_layers_and_inputs_separate():
    def digest(model: nn.Module, shape: tuple[int, ...] = (8, 8, 1), trainable: str = "last") -> str:
        return split(model, trainable, INPUTS).digest(shape)

    def seeded(*first: nn.Module, seed: int = 0) -> nn.Sequential:
        model = network(*first)
        with torch.no_grad():
            for parameter in model.parameters():
                parameter.normal_(generator=torch.Generator().manual_seed(seed))
        return model

    known = digest(seeded(nn.Conv2d(1, 4, 3), nn.ReLU()))
    assert digest(seeded(nn.Conv2d(1, 4, 3), nn.ReLU())) == known
    others = [
        digest(seeded(nn.Conv2d(1, 4, 3), nn.ReLU(), seed=1)),
        digest(seeded(nn.Conv2d(1, 4, 3), nn.Tanh())),
        digest(seeded(nn.Conv2d(1, 4, 3, stride=2), nn.ReLU())),
        digest(seeded(nn.Conv2d(1, 4, 3), nn.ReLU()), shape=(8, 8, 3)),
    ]
    assert len({known, *others}) == 5


def test_the_rest_may_change_and_the_digest_stays():
    model = network(nn.Conv2d(1, 4, 3), nn.ReLU())
    known = split(model, "last", INPUTS).digest((8, 8, 1))
    with torch.no_grad():
        model[3].bias += 1
    assert split(model, "last", INPUTS).digest((8, 8, 1)) == known


# A row is a function of one record alone, whatever the layers do with many of them at once or one after the other.


class LargestOfAll(nn.Module):
    """Adds how far the largest value of a batch lies above what records hold; of most records nothing."""

    def forward(self, x):
        return x + (x.amax() - 50).clamp(min=0)


class Late(nn.Module):
    """Begins to use what it saw when more was seen than is tried; it keeps that itself, or where it is told."""

    keeper: Any

    def __init__(self, keeper: nn.Module | None = None) -> None:
        super().__init__()
        object.__setattr__(self, "keeper", keeper or self)
        self.keeper.bank = []

    def forward(self, x):
        self.keeper.bank.append(x.sum().item())
        # after eleven calls of a trial and five of records
        return x + 1e-7 * self.keeper.bank[15] if len(self.keeper.bank) > 20 else x


def coupled(kind: str) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        made = nn.Sequential(nn.Linear(6, 6), nn.Identity(), nn.Linear(6, 3))
    made[1] = LargestOfAll() if kind == "a batch" else Late(made if kind == "the network" else None)
    return made


def rows(folder, inputs, owners, model) -> np.ndarray:
    users = data.from_arrays(inputs, owners, [f"u{owner:03d}" for owner in owners])
    behind = PrefixCache(folder, cut_for(model, "last", users, "cpu"), device="cpu").through(users, "data")
    return np.asarray(behind.inputs[0 : len(inputs)])


@pytest.mark.parametrize("kind", ["a batch", "the layer", "the network"])
def test_nobodys_rows_change_with_what_somebody_else_holds(kind, tmp_path):
    owners = np.repeat(np.arange(180), 3)
    ours = np.random.default_rng(0).normal(0, 1, (540, 6)).astype(np.float32)
    other = ours.copy()
    other[151] = 1000.0
    before, after = (
        rows(tmp_path / str(place), each, owners, coupled(kind)) for place, each in enumerate((ours, other))
    )
    changed = np.flatnonzero((before != after).any(1))
    assert changed.tolist() == [151]


def test_nobodys_rows_change_to_the_last_bit_when_somebody_leaves(tmp_path):
    owners = np.repeat(np.arange(30), 3)
    pixels = np.random.default_rng(0).integers(0, 256, (90, 28, 28, 1), np.uint8)
    kept = owners != 5
    network = models.lenet(generator=torch.Generator().manual_seed(0))
    there = rows(tmp_path / "there", pixels, owners, network)
    gone = rows(tmp_path / "gone", pixels[kept], owners[kept], network)
    assert np.array_equal(there[kept], gone)


class Threshold(nn.Module):
    def __init__(self, at: float) -> None:
        super().__init__()
        self.at = at

    def forward(self, x):
        return x.clamp(max=self.at)


def test_layers_with_another_setting_that_only_rare_records_meet_are_other_layers(tmp_path):
    owners = np.repeat(np.arange(20), 3)
    inputs = np.random.default_rng(0).normal(0, 1, (60, 6)).astype(np.float32)
    inputs[31] = 1000.0
    for at in (100.0, 200.0):
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)
            model = nn.Sequential(nn.Linear(6, 6), Threshold(at), nn.Linear(6, 3))
        if at == 100.0:
            rows(tmp_path, inputs, owners, model)
    with pytest.raises(InputError, match=r"made of something else \(layers"):
        rows(tmp_path, inputs, owners, model)


# What is kept of records: bound to layers and records, private, taken up after a stop, never used by mistake.


def model(seed: int = 0, activation: nn.Module | None = None) -> nn.Sequential:
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return nn.Sequential(nn.Conv2d(1, 4, 3), activation or nn.ReLU(), nn.Flatten(), nn.Linear(144, 4))


def people(count: int = 40, seed: int = 0, side: int = 8) -> data.UserDataset:
    pixels = np.random.default_rng(seed).integers(0, 256, (3 * count, side, side, 1), np.uint8)
    owners = np.repeat(np.arange(count), 3)
    return data.from_arrays(pixels, owners, [f"u{owner:03d}" for owner in owners])


def opened(folder, users, network: nn.Module | None = None, progress=None) -> PrefixCache:
    network = network or model()
    return PrefixCache(folder, cut_for(network, "last", users, "cpu"), device="cpu", progress=progress)


def test_a_row_is_what_the_layers_make_of_its_record(tmp_path):
    users, network = people(), model()
    behind = opened(tmp_path / "cache", users, network).through(users, "data")
    assert behind.input_shape == (144,)
    assert (behind.sizes == users.sizes).all()
    for user in (0, 17, 39):
        with torch.no_grad():
            wanted = network[:3](data.to_tensor(users.examples(user)[0]))
        features, labels = behind.examples(user)
        assert (labels == users.examples(user)[1]).all()
        # 9 products of numbers below one a feature, in single precision
        assert np.allclose(features, wanted, rtol=1e-5, atol=1e-6)


def test_views_of_the_same_records_share_their_rows(tmp_path):
    users = people()
    cache = opened(tmp_path / "cache", users)
    train = cache.through(users.subset(np.arange(30)), "data")
    test = cache.through(users.subset(np.arange(30, 40)), "test")
    assert train.inputs is test.inputs
    assert (len(train), len(test)) == (30, 10)
    cache.through(people(5, seed=1), "validation")
    assert sorted(path.name for path in (tmp_path / "cache").iterdir()) == [
        "README.txt", "private-data", "private-validation",
    ]  # fmt: skip


def test_rows_are_computed_once(tmp_path):
    users, told = people(), []
    opened(tmp_path / "cache", users, progress=lambda *now: told.append(now)).through(users, "data")
    assert told[-1] == ("data", 120, 120)
    again: list[tuple] = []
    opened(tmp_path / "cache", users, progress=lambda *now: again.append(now)).through(users, "data")
    assert again == []


def test_the_folders_are_for_their_owner_only_and_say_that_they_are_private(tmp_path):
    users, before = people(), os.umask(0o022)
    try:
        opened(tmp_path / "cache", users).through(users, "data")
    finally:
        os.umask(before)
    cache = tmp_path / "cache"
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700
    assert stat.S_IMODE((cache / "private-data").stat().st_mode) == 0o700
    assert stat.S_IMODE((cache / "README.txt").stat().st_mode) == 0o600
    assert (cache / "README.txt").read_text().startswith("PRIVATE.")
    assert "PRIVATE." in (cache / "private-data" / "store.json").read_text()


def test_a_folder_that_was_there_is_closed_to_others(tmp_path):
    users, unfinished = people(), tmp_path / "cache" / ".private-data.partial"
    unfinished.mkdir(parents=True, mode=0o755)
    opened(tmp_path / "cache", users).through(users, "data")
    assert stat.S_IMODE((tmp_path / "cache" / "private-data").stat().st_mode) == 0o700


def test_a_folder_of_something_else_is_refused_and_nothing_comes_to_lie_in_it(tmp_path):
    """It may hold public pictures, which are shared."""
    (tmp_path / "pictures" / "a").mkdir(parents=True)
    with pytest.raises(InputError, match=r"must be a new folder or a cache, and .*pictures holds a; name another one"):
        opened(tmp_path / "pictures", people())
    assert [path.name for path in (tmp_path / "pictures").iterdir()] == ["a"]


@pytest.mark.parametrize("begun", [False, True])
def test_a_folder_that_cannot_be_written_is_named_with_what_to_do(tmp_path, monkeypatch, begun):
    def full(*_, **__):
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    users = people()
    folder = tmp_path / "cache"
    if begun:
        opened(folder, users).through(people(5, seed=1), "validation")
    monkeypatch.setattr(cache_module, "stored_rows" if begun else "write_atomic", full)
    with pytest.raises(InputError, match=r"prefix_cache \S+cache cannot be written: Read-only.*--prefix-cache"):
        opened(folder, users).through(users, "data")


def test_another_set_of_records_has_another_fingerprint_and_the_same_one_the_same(tmp_path):
    users = people()
    known = opened(tmp_path / "one", users).through(users, "data").fingerprint()
    assert opened(tmp_path / "two", users).through(users, "data").fingerprint() == known
    assert opened(tmp_path / "three", users, model(1)).through(users, "data").fingerprint() != known
    others = people(seed=1)
    assert opened(tmp_path / "four", others).through(others, "data").fingerprint() != known
    part = users.subset(np.arange(20))
    assert opened(tmp_path / "one", part).through(part, "data").fingerprint() != known


@pytest.mark.parametrize(
    ("users", "network", "message"),
    [
        (people(), model(1), r"private-data was made of something else \(layers \w{12}… then, \w{12}… now\)"),
        (people(), model(0, nn.Tanh()), r"made of something else \(layers .*\): other weights, or another cut"),
        (
            people(seed=1),
            model(),
            r"made of something else \(records \w{12}… then, \w{12}… now\): other.*another folder",
        ),
        (people(side=9), nn.Sequential(*model()[:3], nn.Linear(196, 4)), r"input_shape \[8, 8, 1\] then, \[9, 9, 1\]"),
    ],
)
def test_rows_of_other_layers_or_records_are_refused(tmp_path, users, network, message):
    opened(tmp_path / "cache", people()).through(people(), "data")
    with pytest.raises(InputError, match=message):
        opened(tmp_path / "cache", users, network).through(users, "data")


class Stop(BaseException):
    """Ctrl-C, or whatever ends a process that may still write."""


def test_what_was_computed_before_a_stop_is_not_computed_again(tmp_path):
    users, told = people(), []

    def stop(name: str, done: int, of: int) -> None:
        told.append(done)
        if done >= 64:
            raise Stop

    with pytest.raises(Stop):
        opened(tmp_path / "cache", users, progress=stop).through(users, "data")
    assert not (tmp_path / "cache" / "private-data").exists()
    later: list[int] = []
    found = opened(tmp_path / "cache", users, progress=lambda _, done, of: later.append(done)).through(users, "data")
    assert (told, later) == ([32, 64], [96, 120])
    assert found.fingerprint() == opened(tmp_path / "whole", users).through(users, "data").fingerprint()


def test_a_half_written_cache_of_other_records_is_refused(tmp_path):
    def stop(name: str, done: int, of: int) -> None:
        raise Stop

    with pytest.raises(Stop):
        opened(tmp_path / "cache", people(), progress=stop).through(people(), "data")
    others = people(seed=1)
    with pytest.raises(InputError, match=r"was begun with other options \(records=.*to start again"):
        opened(tmp_path / "cache", others).through(others, "data")


def test_an_unfinished_folder_that_was_damaged_is_refused(tmp_path):
    def stop(name: str, done: int, of: int) -> None:
        if done == 64:
            raise Stop

    with pytest.raises(Stop):
        opened(tmp_path / "cache", people(), progress=stop).through(people(), "data")
    for waiting in (tmp_path / "cache" / "private-data.partial").glob("waiting-*"):
        waiting.write_bytes(b"something else")
    with pytest.raises(InputError, match="is damaged; delete"):
        opened(tmp_path / "cache", people()).through(people(), "data")


def test_a_changed_byte_is_seen(tmp_path):
    users = people()
    opened(tmp_path / "cache", users).through(users, "data")
    file = tmp_path / "cache" / "private-data" / "examples.arrow"
    content = bytearray(file.read_bytes())
    content[len(content) // 2] ^= 0x40
    file.write_bytes(content)
    with pytest.raises(InputError, match=r"were changed after packing; delete .*private-data, and it is made again"):
        opened(tmp_path / "cache", users).through(users, "data")


def test_a_cache_that_was_cut_short_is_seen(tmp_path):
    users = people()
    opened(tmp_path / "cache", users).through(users, "data")
    file = tmp_path / "cache" / "private-data" / "examples.arrow"
    file.write_bytes(file.read_bytes()[:-100])
    with pytest.raises(InputError, match=r"is damaged; delete .*private-data, and it is made again"):
        opened(tmp_path / "cache", users).through(users, "data")


def test_layers_whose_code_has_changed_since_are_seen(tmp_path, monkeypatch):
    """Names, weights and settings are the same, so digests are; what is computed is not."""
    users, network = people(), model()
    opened(tmp_path / "cache", users, network).through(users, "data")
    monkeypatch.setattr(nn.ReLU, "forward", lambda self, x: x.abs())
    with pytest.raises(InputError, match="holds other rows than the layers give now"):
        opened(tmp_path / "cache", users, network).through(users, "data")


def test_layers_that_begin_to_keep_something_are_seen_while_records_go_through(tmp_path):
    calls = []

    class Late(nn.Module):
        """Keeps what it sees from its hundredth call on, of which no trial knows."""

        def __init__(self):
            super().__init__()
            self.register_buffer("level", torch.zeros(()))

        def forward(self, x):
            calls.append(1)
            if len(calls) > 100:
                self.level += x.mean()
            return x

    users = people()
    network = nn.Sequential(nn.Conv2d(1, 4, 3), Late(), nn.Flatten(), nn.Linear(144, 4))
    with pytest.raises(InputError, match=r"keep state.*1\.level changes"):
        opened(tmp_path / "cache", users, network).through(users, "data")
    assert not (tmp_path / "cache" / "private-data").exists()


def test_a_file_in_the_place_of_the_folder_is_refused(tmp_path):
    (tmp_path / "cache").write_text("")
    with pytest.raises(InputError, match="must be a folder"):
        opened(tmp_path / "cache", people())


def test_another_process_that_writes_the_same_rows_is_waited_for_by_its_user(tmp_path):
    users = people()

    def second(name: str, done: int, of: int) -> None:
        with pytest.raises(InputError, match="another process is writing"):
            opened(tmp_path / "cache", users).through(users, "data")

    opened(tmp_path / "cache", users, progress=second).through(users, "data")


def test_examples_have_rows_of_their_own(tmp_path):
    pixels = np.random.default_rng(0).integers(0, 256, (50, 8, 8, 1), np.uint8)
    whole = data.examples_from_arrays(pixels, np.arange(50) % 4, num_classes=4)
    network, train = model(), whole.subset(np.arange(40))
    behind = opened(tmp_path / "cache", train, network).through(train, "data")
    (features,), targets = behind.examples(np.array([3, 39]))
    with torch.no_grad():
        wanted = network[:3](data.to_tensor(pixels[[3, 39]]))
    assert np.allclose(features, wanted, rtol=1e-5, atol=1e-6)
    assert targets.tolist() == [3, 3]
    two = data.ExampleDataset(inputs=(pixels, pixels), targets=np.arange(50))
    with pytest.raises(InputError, match="one input each"):
        cut_for(network, "last", two, "cpu")
