"""A custom loop refuses what would break its guarantee, and bad input in a line."""

import contextlib
import sys

import pandas as pd
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from central.loops import by_steps, inputs, labels, losses_of, net, plan, records, same, sgd, train
from sfumato._check import InputError
from sfumato.training import Callback, RunOptions


def goes_through(body, *, data=None, **options) -> None:
    """A run whose loop does `body(private, model, optimizer, batch)`."""
    model = net()
    optimizer = sgd(model)
    with plan().open(model, optimizer, records() if data is None else data, **options) as private:
        for batch in private:
            body(private, model, optimizer, batch)


def refused(body, **options) -> str:
    """The message of such a run."""
    with pytest.raises(InputError) as error:
        goes_through(body, **options)
    return str(error.value)


def with_each_step(change) -> None:
    """A run that calls `change(model)` behind each step."""
    model = net()
    with plan().open(model, sgd(model), records()) as private:
        by_steps(private, model, lambda: change(model))


class OfEpoch(Dataset):
    """Draws from a generator of its own, by an epoch that the loop sets."""

    def __init__(self) -> None:
        self.inputs, self.labels, self.epoch = inputs(), labels(), 0

    def __len__(self) -> int:
        return len(self.labels)

    def __getitem__(self, place: int) -> tuple:
        own = torch.Generator().manual_seed(1000 * self.epoch + place)
        return self.inputs[place] + torch.rand((), generator=own), self.labels[place]


@pytest.mark.parametrize("workers", [0, 1])
def test_an_epoch_that_is_set_is_said_of_the_data_set_and_not_of_the_model(workers: int):
    data, model = OfEpoch(), net()

    def epoch_by_step() -> None:
        with plan().open(model, sgd(model), data, workers=workers) as private:
            for step in private.steps():
                data.epoch += 1
                for batch in step:
                    private.backward(losses_of(model, batch))

    with pytest.raises(InputError, match="the data set gives other examples than when the run was opened"):
        epoch_by_step()


def test_a_second_backward_is_refused():
    def twice(private, model, optimizer, batch):
        private.backward(losses_of(model, batch))
        private.backward(losses_of(model, batch))

    assert "once for each" in refused(twice)


def test_a_step_by_hand_is_refused():
    def by_hand(private, model, optimizer, batch):
        private.backward(losses_of(model, batch))
        optimizer.step()

    assert "by hand" in refused(by_hand)


def test_a_gradient_of_one_s_own_is_refused():
    def own(private, model, optimizer, batch):
        model[0].weight.grad = torch.ones_like(model[0].weight)
        private.backward(losses_of(model, batch))

    assert ".grad" in refused(own)


def test_a_backward_pass_past_the_run_is_refused():
    def past(private, model, optimizer, batch):
        losses = losses_of(model, batch)
        losses.sum().backward(retain_graph=True)
        private.backward(losses)

    assert "backward" in refused(past)


def test_losses_of_another_batch_are_refused():
    kept = []

    def stale(private, model, optimizer, batch):
        if not private.trying:
            kept.append(losses_of(model, batch))
            private.backward(kept[0] if len(kept[0]) == len(batch[0]) else losses_of(model, batch))
        else:
            private.backward(losses_of(model, batch))

    assert "no trained parameter" in refused(stale)


def test_a_micro_batch_that_is_left_out_is_refused():
    assert "left out" in refused(lambda private, model, optimizer, batch: None)


def test_a_step_that_is_left_in_the_middle_is_refused():
    def run() -> None:
        model = net()
        with plan().open(model, sgd(model), records()) as private:
            for step in private.steps():
                for batch in step:
                    private.backward(losses_of(model, batch))
                    if not private.trying:
                        break

    with pytest.raises(InputError, match="some micro-batches of a step were left out"):
        run()


def test_a_parameter_that_is_changed_between_two_steps_is_refused():
    def move(model: nn.Module) -> None:
        with torch.no_grad():
            model[3].bias += 1.0

    with pytest.raises(InputError, match=r"3\.bias. of the model was changed between two steps"):
        with_each_step(move)


def test_an_attribute_that_is_changed_between_two_steps_is_refused():
    def anneal(model: nn.Module) -> None:
        model[1].p *= 0.5

    with pytest.raises(InputError, match=r"'p' of the model was changed"):
        with_each_step(anneal)


def test_what_a_loop_forgets_on_resume_is_refused_where_noise_would_be_repeated(tmp_path):
    """A counter that is not kept begins anew: the sums of the repeated steps would be others."""

    def run(stop: int | None, **options) -> None:
        model, seen = net(), 0
        with plan(steps=10).open(
            model, sgd(model), records(), out=tmp_path / "run", options=RunOptions(checkpoint_every=4), **options
        ) as private:
            for step in private.steps():
                for batch in step:
                    private.backward((1 + 0.1 * seen) * losses_of(model, batch))
                seen += 1
                if private.done == stop:
                    raise ZeroDivisionError

    with contextlib.suppress(ZeroDivisionError):
        run(6)
    with pytest.raises(InputError, match="released with another sum"):
        run(None, resume=True)


def test_leaving_among_the_trials_leaves_torch_as_it_was():
    for last in range(0, 60, 7):
        model = net()
        with plan().open(model, sgd(model), records()) as private:
            for place, batch in enumerate(private):
                if place == last:
                    break
                private.backward(losses_of(model, batch))
        assert torch.is_grad_enabled()
        assert private.result is None
        assert all(parameter.requires_grad for parameter in model.parameters())
        sgd(model).step()


def test_a_loop_that_is_used_otherwise_than_in_its_block_is_refused():
    model = net()
    private = plan(steps=1).open(model, sgd(model), records())
    with pytest.raises(InputError, match="with block"):
        next(iter(private))
    with private:
        for batch in private:
            private.backward(losses_of(model, batch))
    with pytest.raises(InputError, match="runs once"):
        private.__enter__()


def test_an_optimiser_that_needs_closures_is_refused():
    model = net()
    with pytest.raises(InputError, match="LBFGS"):
        plan().open(model, torch.optim.LBFGS(model.parameters()), records())


def test_weights_that_are_loaded_within_the_block_are_refused():
    def run() -> None:
        model = net()
        with plan().open(model, sgd(model), records()) as private:
            model.load_state_dict(net().state_dict())
            for batch in private:
                private.backward(losses_of(model, batch))

    with pytest.raises(InputError, match="before the loop is opened"):
        run()


def test_layers_that_are_frozen_while_training_are_refused():
    def freeze(model: nn.Module) -> None:
        model[0].requires_grad_(False)

    with pytest.raises(InputError, match="trains the same parameters throughout"):
        with_each_step(freeze)


def test_a_data_set_that_grows_is_refused():
    class Growing(TensorDataset):
        more = 0

        def __len__(self):
            return 300 + self.more

    data = Growing(inputs(), labels())

    def grow(private, model, optimizer, batch):
        private.backward(losses_of(model, batch))
        data.more = 1 if private.done == 2 else 0

    assert "301" in refused(grow, data=data)


def test_a_loss_that_couples_examples_is_refused():
    def coupled(private, model, optimizer, batch):
        losses = losses_of(model, batch)
        private.backward(losses / losses.detach().sum())

    assert "coupled" in refused(coupled)


def test_a_loop_that_looks_at_the_whole_batch_without_a_gradient_is_refused():
    def ranked(private, model, optimizer, batch):
        x, y = batch
        private.backward(losses_of(model, (x - x.mean(dim=0), y)))

    assert "coupled" in refused(ranked)


def test_a_collate_function_that_mixes_examples_is_refused():
    def mixing(samples):
        x = torch.stack([sample[0] for sample in samples])
        return x / x.norm(), torch.tensor([int(sample[1]) for sample in samples])

    assert "coupled" in refused(lambda p, m, o, batch: p.backward(losses_of(m, batch)), collate=mixing)


def test_a_coupling_that_begins_while_training_is_refused():
    def late(private, model, optimizer, batch):
        x, y = batch
        private.backward(losses_of(model, (x * (1 + (private.done > 1) * x.abs().sum()), y)))

    assert "at step" in refused(late)


def test_the_model_is_as_it_was_when_only_trials_have_gone_through():
    model = net()
    with plan().open(model, sgd(model), records()) as private:
        for batch in private:
            if not private.trying:
                break
            private.backward(losses_of(model, batch))
    assert same(model, net())


# ---- bad input


@pytest.mark.parametrize(
    ("data", "told"),
    [
        (DataLoader(records()), "DataLoader"),
        (type("Stream", (IterableDataset,), {"__iter__": lambda self: iter(())})(), "map-style"),
        (iter([1]), "map-style"),
        (TensorDataset(torch.zeros(0, 8), torch.zeros(0)), "no examples"),
        (TensorDataset(torch.zeros(1, 8), torch.zeros(1).long()), "at least 2"),
        ([(torch.zeros(8), 0, torch.zeros(1 + place % 2)) for place in range(300)], "collate"),
    ],
)
def test_a_data_set_of_no_use_is_refused_in_a_line(data, told):
    message = refused(lambda p, m, o, batch: p.backward(losses_of(m, batch)), data=data)
    assert told in message
    assert "\n" not in message


def test_a_data_set_that_changes_between_two_reads_is_refused():
    class Changing(Dataset):
        reads = 0

        def __len__(self):
            return 300

        def __getitem__(self, place):
            self.reads += 1
            return torch.full((8,), float(self.reads)), 0

    assert "read again" in refused(lambda p, m, o, batch: None, data=Changing())


@pytest.mark.parametrize("losses", [lambda values: values.mean(), lambda values: values[:, None], lambda values: 3.0])
def test_a_loss_that_is_not_one_an_example_is_refused(losses):
    told = refused(lambda p, m, o, batch: p.backward(losses(losses_of(m, batch))))
    assert "one loss for each example" in told


def test_an_optimiser_of_other_parameters_is_refused():
    model = net()
    with pytest.raises(InputError, match="none of the model's"):
        plan().open(model, sgd(net()), records())
    with pytest.raises(InputError, match="not in the optimiser"):
        plan().open(model, torch.optim.SGD(model[0].parameters(), lr=0.1), records())
    model[0].weight.requires_grad_(False)
    with pytest.raises(InputError, match="requires no gradient"):
        plan().open(model, sgd(model), records())


@pytest.mark.parametrize(
    ("given", "told"), [(None, "NoneType"), (torch.optim.SGD, "the class SGD"), (print, "builtin_function_or_method")]
)
def test_what_is_no_optimiser_or_no_module_is_refused_by_its_kind(given, told):
    with pytest.raises(InputError, match=rf"optimizer must be one of torch.optim's, got {told}; "):
        plan().open(net(), given, records())
    with pytest.raises(InputError, match=rf"model must be a torch.nn.Module, got {told}; "):
        plan().open(given, sgd(net()), records())


def test_a_model_without_values_is_refused():
    with torch.device("meta"):
        model = net()
    with pytest.raises(InputError, match=r"0\.weight is on the device meta and has no values; .*to_empty"):
        plan().open(model, sgd(model), records())


def test_a_setting_that_the_loop_decides_is_refused():
    model = net()
    with pytest.raises(InputError, match="learning_rate"):
        plan(**{"server.learning_rate": 0.1}).open(model, sgd(model), records())


def test_another_optimiser_data_set_or_object_to_keep_does_not_go_on(tmp_path):
    model = net()
    with plan().open(model, sgd(model), records(), out=tmp_path / "run") as private:
        for batch in private:
            private.backward(losses_of(model, batch))
            if private.done == 2:
                break
    with pytest.raises(InputError, match=r"another plan, model or data set \(another optimizer\)"):
        train(optimizer=lambda m: torch.optim.SGD(m.parameters(), lr=0.4), out=tmp_path / "run", resume=True)
    other = TensorDataset(inputs() + 1e-3, labels())
    with pytest.raises(InputError, match="another plan, model or data set"):
        train(data=other, out=tmp_path / "run", resume=True)
    told = refused(lambda p, m, o, batch: p.backward(2 * losses_of(m, batch)), out=tmp_path / "run", resume=True)
    assert "computes something else" in told


class Dying(TensorDataset):
    """Ends the process that reads a certain example."""

    def __getitem__(self, place):
        if place % 2 and torch.utils.data.get_worker_info() is not None:
            sys.exit(1)
        return super().__getitem__(place)


def test_a_process_that_reads_and_dies_is_told_in_a_line():
    told = refused(lambda p, m, o, batch: p.backward(losses_of(m, batch)), data=Dying(inputs(), labels()), workers=1)
    assert "has died" in told


class Promising(Dataset):
    """Says that it has more than it has."""

    def __len__(self) -> int:
        return 500

    def __getitem__(self, place: int):
        return records()[place]


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ({"data": {"x": inputs(), "y": labels()}}, "a dict gives columns by name and no examples by place"),
        ({"data": pd.DataFrame({"x": [1.0, 2.0]})}, r"a DataFrame gives columns .*; give a torch Dataset"),
        ({"data": Promising()}, r"the data set of 500 examples has none at places .*IndexError"),
        ({"collate": 3}, "collate must be a function from a list of examples to a batch, got int"),
        ({"keep": [1]}, r"keep must name its objects, keep=\{'scheduler': scheduler\}, got list"),
        (
            {"options": RunOptions(callbacks=[Callback])},
            r"callbacks must be instances of .*Callback, got the class Callback",
        ),
    ],
)
def test_what_has_the_wrong_kind_is_named_with_the_kind_that_it_should_have(given, told):
    with pytest.raises(InputError, match=told):
        goes_through(lambda private, model, optimizer, batch: private.backward(losses_of(model, batch)), **given)


def test_examples_in_a_dict_by_their_place_are_a_data_set():
    data = dict(enumerate(records()))
    goes_through(lambda private, model, optimizer, batch: private.backward(losses_of(model, batch)), data=data)


def told_of_the_statement(private) -> str:
    with pytest.raises(InputError) as error:
        _ = private.statement
    return str(error.value)


def test_a_loop_that_was_left_without_a_step_says_so_and_not_that_it_goes_on():
    model = net()
    with plan().open(model, sgd(model), records()) as private:
        assert "the run is not over" in told_of_the_statement(private)
    assert "was ended before a step was taken, and has no statement" in told_of_the_statement(private)


def test_a_loop_that_an_error_ended_says_after_how_many_steps():
    model = net()
    private = plan().open(model, sgd(model), records())

    def dies_at_two():
        if private.done == 2:
            raise KeyError

    def run():
        with private:
            by_steps(private, model, dies_at_two)

    with pytest.raises(KeyError):
        run()
    assert "was ended by an error after 2 steps, and has no statement; go on with" in told_of_the_statement(private)
