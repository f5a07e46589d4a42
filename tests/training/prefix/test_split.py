"""A model is cut before the first trained stage, and what lies before must be a fixed function of one record."""

import functools

import pytest
import torch
from torch import nn

from sfumato import models
from sfumato._check import InputError
from sfumato.training.frozen_features import holds_more, split

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


@pytest.mark.parametrize("name", ["squeezenet", "resnet20", "mobilenet_v2", "lenet"])
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
    assert set(halves.beside()) == prefix


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
    "tied": (tied(), "^3|^4", r"parameter 3\.weight has several names.*another choice"),
    "undeclared": (Undeclared(), "last", "the stage kept of this Undeclared computes with modules or tensors"),
    "everything trained": (network(nn.Conv2d(1, 4, 3)), "all", r"nothing is frozen before.*0\.weight.*last_blocks:2"),
    "everything adapted": (
        everywhere_adapted(),
        "lora",
        r"nothing is frozen before.*0\.lora_a.*give adapters to later layers only .*--lora-layers",
    ),
    "batch norm": (network(nn.Conv2d(1, 4, 3), nn.BatchNorm2d(4)), "last", "BatchNorm2d.*couples"),
    "mixed": (network(nn.Conv2d(1, 4, 3), Mixing()), "last", "for a record alone than for the same one among others"),
    "counted": (network(nn.Conv2d(1, 4, 3), Counting()), "last", "keep something of what they see .calls changes"),
    "remembered": (network(nn.Conv2d(1, 4, 3), Remembering()), "last", r"keep something.*1\.level changes"),
    "of another shape": (
        nn.Sequential(nn.Conv2d(3, 4, 3), nn.Flatten(), nn.Linear(4, 4)),
        "last",
        "fails on inputs of shape",
    ),
    "no stages": (nn.Bilinear(2, 2, 2), "all", "Bilinear does not tell its stages"),
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
    same = r"draws random|do not give what it gives|the same records|went through before"
    with pytest.raises(InputError, match=same):
        split(network(Listing(), nn.Conv2d(1, 4, 3)), "last", INPUTS)


def test_a_hook_that_no_stage_tells_of_is_refused():
    model = network(nn.Conv2d(1, 4, 3), nn.ReLU())
    model.register_forward_hook(lambda module, inputs, output: output + 1)
    with pytest.raises(InputError, match="do not give what it gives"):
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


def test_the_digest_tells_weights_layers_and_inputs_apart():
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
