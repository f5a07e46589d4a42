"""A custom loop is the run of `fit` turned inside out, and refuses what would break its guarantee."""

import contextlib
import copy
import itertools
import json
import random
import sys
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
import torch
from torch import nn
from torch.nn import functional
from torch.optim import swa_utils
from torch.utils.checkpoint import checkpoint
from torch.utils.data import DataLoader, Dataset, IterableDataset, TensorDataset

from central.loops import STEPS, by_steps, inputs, labels, losses_of, net, plan, records, same, sgd, train, usual
from forked import team
from sfumato._check import InputError
from sfumato._random import RandomSource
from sfumato.central.custom_loop.contribution import SumDigests
from sfumato.data import examples_from_arrays
from sfumato.statement.facts import prepared_alone
from sfumato.statement.sentences import render
from sfumato.training import Callback, RunOptions, Stop
from slow import slow_but

pytestmark = pytest.mark.fresh

# A custom loop is the run of `fit` turned inside out.


# A loop of one's own is the run of `fit` turned inside out.


@pytest.mark.parametrize(
    "fields",
    slow_but(
        [
            {},
            {"clipping": "per_layer"},
            {"cohort": "fixed_size"},
            {"clipping": "adaptive"},
            {"examples.micro_batch": 64},
        ],
        {},
    ),
)
def test_a_plan_gives_the_same_bits_through_fit_and_through_a_loop(fields):
    model, private = train(of=lambda: plan(**fields))
    fitted = plan(server=0.5, **fields).fit(net(), examples_from_arrays(inputs().numpy(), labels().numpy()))
    assert same(model, fitted.model)
    assert private.statement.epsilon == fitted.statement.epsilon
    assert private.result.finished
    assert private.done == private.planned == STEPS
    assert private.epsilon == fitted.history[-1]["epsilon"]


def test_steps_end_behind_their_last_micro_batch_and_an_empty_draw_steps_too():
    model = net()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.5)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.5)
    few = TensorDataset(inputs()[:40], labels()[:40])
    weights, sizes, rates = [], [], []
    with plan(**{"cohort.size": 1}, steps=12).open(model, optimizer, few) as private:
        for step in private.steps():
            rows = 0
            for x, y in step:
                rows += 0 if private.trying else len(x)
                private.backward(losses_of(model, (x, y)))
            scheduler.step()
            sizes.append(rows)
            rates.append(optimizer.param_groups[0]["lr"])
            weights.append(model[0].weight.detach().clone())
            assert private.done == len(sizes)
    assert 0 in sizes, "the draws of this seed should contain an empty one"
    assert sizes == [row["not_private"]["examples"] for row in private.result.history if "clip_norm" in row]
    assert rates == [0.5 * 0.5 ** (1 + place) for place in range(12)]
    assert all(not torch.equal(one, other) for one, other in itertools.pairwise(weights))


def test_the_user_s_own_rate_counts():
    slow, _ = train(optimizer=lambda model: sgd(model, 1e-9))
    assert torch.allclose(slow[0].weight, net()[0].weight, atol=1e-6)


def test_what_is_frozen_stays_and_adam_s_state_goes_on_with_the_run(tmp_path):
    def frozen() -> nn.Module:
        model = net()
        model[0].requires_grad_(False)
        return model

    def adam(model: nn.Module) -> torch.optim.Optimizer:
        return torch.optim.Adam([p for p in model.parameters() if p.requires_grad], lr=0.05)

    whole, _ = train(frozen(), optimizer=adam, out=tmp_path / "whole")
    assert torch.equal(whole[0].weight, net()[0].weight)
    model = frozen()
    options = RunOptions(checkpoint_every=2)
    with (
        contextlib.suppress(ZeroDivisionError),
        plan().open(model, adam(model), records(), out=tmp_path / "cut", options=options) as private,
    ):
        for batch in private:
            private.backward(losses_of(model, batch))
            if private.done == 3:
                _ = 1 / 0
    again, private = train(frozen(), optimizer=adam, out=tmp_path / "cut", resume=True)
    assert same(again, whole)
    assert private.result.finished
    for name in ("model.safetensors", "plan.json"):
        assert (tmp_path / "cut" / name).read_bytes() == (tmp_path / "whole" / name).read_bytes()


def test_leaving_the_loop_stops_the_run_with_a_statement_of_what_was_done(tmp_path):
    model = net()
    with plan().open(model, sgd(model), records(), out=tmp_path / "run") as private:
        by_steps(private, model, lambda: private.done == 2)
    assert not private.result.finished
    whole, whole_loop = usual()
    assert 0 < private.statement.epsilon < whole_loop.statement.epsilon
    again, private = train(out=tmp_path / "run", resume=True)
    assert same(again, whole)


def test_a_run_that_is_left_before_its_first_step_has_no_statement():
    model = net()
    with plan().open(model, sgd(model), records()) as private:
        pass
    with pytest.raises(InputError, match="before a step was taken, and has no statement"):
        _ = private.statement
    sgd(model).step()


@pytest.mark.slow
def test_schedulers_and_averages_go_with_the_checkpoint(tmp_path):
    def run(out: Path, stop: int | None = None, **options):
        model = net()
        optimizer = sgd(model)
        scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, STEPS)
        average = swa_utils.AveragedModel(model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.5))
        keep = {"scheduler": scheduler, "average": average}
        with plan().open(model, optimizer, records(), out=out, keep=keep, **options) as private:
            for step in private.steps():
                for batch in step:
                    private.backward(losses_of(model, batch))
                scheduler.step()
                average.update_parameters(model)
                if private.done == stop:
                    break
        return model, average

    model, average = run(tmp_path / "whole")
    run(tmp_path / "cut", stop=3)
    again, again_average = run(tmp_path / "cut", resume=True)
    assert same(model, again)
    assert same(average, again_average)


def test_a_run_that_goes_on_begins_with_the_weights_that_it_had(tmp_path):
    model = net()
    with plan().open(model, sgd(model), records(), out=tmp_path / "run") as private:
        by_steps(private, model, lambda: private.done == 2)
    again = net()
    with plan().open(again, sgd(again), records(), out=tmp_path / "run", resume=True) as private:
        for batch in private:
            if not private.trying:
                assert private.done == 2
                assert same(again, model)
                break
            private.backward(losses_of(again, batch))


@pytest.mark.slow
def test_workers_read_the_same_batches():
    alone, _ = usual()
    fed, _ = train(workers=2)
    assert same(alone, fed)


class Augmented(Dataset):
    """Draws from all three generators."""

    def __len__(self) -> int:
        return 300

    def __getitem__(self, place: int):
        noise = torch.randn(8) + np.random.normal() + random.random()  # noqa: NPY002
        return inputs()[place] + 0.1 * noise, int(labels()[place])


@pytest.mark.slow
def test_random_augmentation_is_repeated_by_a_run_that_goes_on(tmp_path):
    one, _ = train(data=Augmented(), out=tmp_path / "one")
    other, _ = train(data=Augmented(), workers=2)
    assert same(one, other)


def masking(samples):
    """A collate function that draws."""
    x = torch.stack([sample[0] for sample in samples])
    return x * (torch.rand_like(x) > 0.15), torch.stack([sample[1] for sample in samples])


@pytest.mark.slow
def test_a_collate_function_that_draws_gives_the_same_with_workers_and_after_a_crash(tmp_path):
    def run(out, *, stop=None, **options):
        model = net()
        with plan().open(
            model,
            sgd(model),
            records(),
            collate=masking,
            out=out,
            options=RunOptions(checkpoint_every=2),
            **options,
        ) as private:
            for batch in private:
                private.backward(losses_of(model, batch))
                if private.done == stop:
                    raise ZeroDivisionError
        return model

    whole = run(tmp_path / "whole")
    with contextlib.suppress(ZeroDivisionError):
        run(tmp_path / "cut", stop=3, workers=2)
    assert same(run(tmp_path / "cut", resume=True, workers=1), whole)
    assert not (tmp_path / "cut" / "checkpoint" / "sums").exists()


@pytest.mark.slow
def test_names_of_layers_may_hold_any_characters():
    layers = nn.ModuleDict({"income ($)": nn.Linear(8, 4), "C++": nn.Linear(4, 2)})
    before = copy.deepcopy(layers.state_dict())
    with plan().open(layers, sgd(layers), records()) as private:
        for x, y in private:
            private.backward(functional.cross_entropy(layers["C++"](layers["income ($)"](x)), y, reduction="none"))
    assert all(not torch.equal(tensor, before[name]) for name, tensor in layers.state_dict().items())


def test_an_optimiser_that_assigns_its_result_trains_as_any_other():
    class Assigning(torch.optim.SGD):
        def step(self, closure=None):
            for group in self.param_groups:
                for parameter in group["params"]:
                    parameter.data = parameter.data - group["lr"] * parameter.grad

    assigning, _ = train(optimizer=lambda model: Assigning(model.parameters(), lr=0.5))
    assert same(assigning, usual()[0])


def test_nothing_of_a_record_stays_in_the_user_s_own_model():
    class Keeps(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.layer, self.last = nn.Linear(8, 2), None

        def forward(self, x):
            self.last = x
            return self.layer(x)

    model = Keeps()
    with plan().open(model, sgd(model), records()) as private:
        for step in private.steps():
            for batch in step:
                private.backward(losses_of(model, batch))
            assert model.last is None
    assert model.last is None


@pytest.mark.slow
def test_a_loop_with_autocast_several_losses_and_an_evaluation_in_between():
    model = net(dropout=0.0)
    head = nn.Linear(16, 3)
    both = nn.ModuleList([model, head])
    optimizer = torch.optim.AdamW(both.parameters(), lr=0.01)
    seen = []
    with plan().open(both, optimizer, records()) as private:
        for step in private.steps():
            for x, y in step:
                with torch.autocast("cpu", torch.bfloat16):
                    hidden = model[2](model[0](x))
                    first = functional.cross_entropy(model[3](hidden), y, reduction="none")
                    second = functional.cross_entropy(head(hidden), y % 3, reduction="none")
                    private.backward(first.float() + second.float())
            model.eval()
            with torch.no_grad():
                seen.append(float(functional.cross_entropy(model(inputs()), labels())))
            model.train()
    assert len(seen) == STEPS
    assert all(parameter.requires_grad for parameter in both.parameters())


@pytest.mark.parametrize("reentrant", slow_but([False, True], True))
def test_gradient_checkpointing_gives_the_same_bits(reentrant):
    class Saving(nn.Module):
        def __init__(self, on: bool) -> None:
            super().__init__()
            torch.manual_seed(1)
            self.first, self.second = nn.Linear(8, 16), nn.Linear(16, 2)
            self.on = on

        def forward(self, x):
            def inner(x):
                return functional.relu(self.first(x))

            if self.on and reentrant:
                x = x.requires_grad_(True)
            return self.second(checkpoint(inner, x, use_reentrant=reentrant) if self.on else inner(x))

    saving, _ = train(Saving(True))
    plain, _ = train(Saving(False))
    assert same(saving, plain)


@pytest.mark.slow
def test_a_compiled_model_trains_as_it_is_written():
    model = net()
    compiled = torch.compile(model, backend="eager")
    with plan().open(model, sgd(model), records()) as private:
        for batch in private:
            private.backward(losses_of(compiled, batch))
    assert same(model, usual()[0])


@pytest.mark.slow
def test_callbacks_are_reported_and_may_stop(tmp_path):
    told = []

    class Told(Callback):
        def on_start(self, plan, rounds, done):
            told.append(("start", rounds, done))

        def on_round(self, row):
            told.append(("round", row["round"]))
            if row["round"] == 4:
                raise Stop

        def on_checkpoint(self, round, folder):
            told.append(("checkpoint", round))

        def on_end(self, result):
            told.append(("end", result.finished))

    _, private = train(out=tmp_path / "run", callbacks=[Told()])
    assert told[0] == ("start", STEPS, 0)
    assert [each for each in told if each[0] == "round"] == [("round", n) for n in (1, 2, 3, 4)]
    assert ("checkpoint", 4) in told
    assert told[-1] == ("end", False)
    assert not private.result.finished


def test_a_callback_of_fit_sees_measurements():
    seen = []

    class Seen(Callback):
        def on_evaluation(self, row, model):
            seen.append((row["round"], row["evaluation"], isinstance(model, nn.Module)))

    data = examples_from_arrays(inputs().numpy(), labels().numpy())
    plan().fit(net(), data, validation=data, options=RunOptions(evaluate_every=3, callbacks=[Seen()]))
    assert seen == [(0, "validation", True), (3, "validation", True), (6, "validation", True)]


@pytest.mark.slow
def test_two_processes_give_the_result_of_one(tmp_path):
    team(Path(__file__).with_name("loops.py"), [str(tmp_path)], tmp_path / "told", 2)
    alone, _ = train(net(dropout=0.0), of=lambda: plan(steps=3))
    together = torch.load(tmp_path / "model.pt")
    for name, tensor in alone.state_dict().items():
        assert torch.allclose(tensor, together[name], atol=1e-5)
    assert json.loads((tmp_path / "run" / "statement.json").read_text())["epsilon"] > 0


def test_a_copy_of_the_model_may_be_taken_at_any_time():
    model = net()
    with plan(steps=1).open(model, sgd(model), records()) as private:
        for batch in private:
            private.backward(losses_of(model, batch))
    assert same(copy.deepcopy(model), model)


def test_the_statement_says_once_that_examples_follow_from_no_others():
    statement = usual()[1].statement
    assert statement.assumptions.count(render(prepared_alone("example"))) == 1


# What a loop remembers of examples is refused; what may be a schedule is in a warning and in the statement.

TOLD = "other losses or gradients"


def told(private) -> list[str]:
    return [sentence for sentence in private.statement.assumptions if TOLD in sentence]


def weighed(model, weight, *, steps=None, behind=lambda private, losses: None, **options):
    """A loop that multiplies the losses by `weight(private)`, and calls `behind` for each batch that is no trial."""
    with plan(**{"examples.micro_batch": 300}).open(model, sgd(model), records(), **options) as private:
        for step in private.steps():
            for batch in step:
                losses = losses_of(model, batch)
                private.backward(losses * weight(private))
                if not private.trying:
                    behind(private, losses.detach())
            if private.done == steps:
                break
    return private


def test_a_loop_that_weighs_losses_by_those_of_earlier_steps_is_refused():
    mean = [1.0]

    def remember(private, losses):
        mean[0] = 0.9 * mean[0] + 0.1 * float(losses.mean())

    with pytest.raises(InputError, match="the loss of one depends on those that went through before"):
        weighed(net(), lambda private: mean[0], behind=remember)


def test_a_loop_that_counts_its_batches_is_reported():
    """A schedule, or a memory: from the losses alone nobody can tell one from the other."""
    count = [0]

    def more(private, losses):
        count[0] += 1

    with pytest.warns(UserWarning, match=f"At step \\d+ .* {TOLD}"):
        private = weighed(net(), lambda private: 1.0 + count[0], behind=more)
    (sentence,) = told(private)
    assert "no bound on one example holds" in sentence


def test_what_a_loop_keeps_behind_its_inner_loop_and_reads_only_later_is_reported():
    """Batches that are only tried say done=0: a look at those alone would see nothing."""
    model, kept = net(), [0.0]

    def run():
        with plan(**{"examples.micro_batch": 300}).open(model, sgd(model), records()) as private:
            for step in private.steps():
                seen = []
                for batch in step:
                    losses = losses_of(model, batch)
                    seen.append(float(losses.detach().mean()))
                    private.backward(losses * (1.0 + (kept[0] if private.done else 0.0)))
                kept[0] += sum(seen)
        return private

    with pytest.warns(UserWarning, match=rf"At step \d+ .* {TOLD}"):
        private = run()
    (sentence,) = told(private)
    assert "no bound on one example holds" in sentence


def with_a_rate(follow):
    """A loop that calls `follow(private, optimizer, losses)` for each batch."""
    model = net()
    optimizer = sgd(model)
    with plan(**{"examples.micro_batch": 300}).open(model, optimizer, records()) as private:
        for batch in private:
            losses = losses_of(model, batch)
            follow(private, optimizer, losses.detach())
            private.backward(losses)


def test_a_rate_that_changes_with_the_losses_of_a_step_is_refused():
    """The step would follow from losses without noise."""

    def follow(private, optimizer, losses):
        if not private.trying:
            optimizer.param_groups[0]["lr"] = 0.1 / float(losses.mean())

    with pytest.raises(InputError, match="lr of the optimiser was changed between the first micro-batch of a step"):
        with_a_rate(follow)


def test_what_stands_in_front_of_the_inner_loop_runs_once_a_step_and_may_set_the_rate():
    seen, model = [], net()
    optimizer = sgd(model)
    with plan().open(model, optimizer, records()) as private:
        for step in private.steps():
            seen.append(private.done)
            optimizer.param_groups[0]["lr"] = 0.5 / (1 + private.done)
            for batch in step:
                private.backward(losses_of(model, batch))
    assert seen == list(range(STEPS))
    assert any("changed settings of the optimiser" in each for each in private.statement.assumptions)


def test_a_loop_that_cannot_be_tried_as_in_other_steps_is_stated():
    rates, model = [1.0], net()
    with plan().open(model, sgd(model), records()) as private:
        for step in private.steps():
            for batch in step:
                private.backward(rates[private.done] * losses_of(model, batch))
            rates.append(1.0)
    assert any(
        "Some of these trials could not be made. The code raised an error" in each
        for each in private.statement.assumptions
    )


def test_a_first_step_that_draws_hardly_anything_is_tried_all_the_same():
    means: dict[int, torch.Tensor] = {}
    model = net()

    def keeping() -> None:
        few = plan(**{"cohort.size": 1, "examples.micro_batch": 1}, steps=4)
        with few.open(model, sgd(model), records()) as private:
            for step in private.steps():
                for inputs, labels in step:
                    if not private.trying:
                        means[private.done] = inputs.mean(dim=0)
                    earlier = means.get(private.done - 1, torch.zeros(8))
                    private.backward(losses_of(model, (inputs - earlier, labels)))

    with pytest.raises(InputError, match="coupled"):
        keeping()


def test_a_rate_that_changes_while_the_loop_is_tried_out_is_refused():
    def follow(private, optimizer, losses):
        optimizer.param_groups[0]["lr"] *= 0.99

    with pytest.raises(InputError, match="lr of the optimiser was changed while the loop was tried out"):
        with_a_rate(follow)


def test_a_scheduler_behind_the_inner_loop_changes_the_rate():
    model = net()
    optimizer = sgd(model)
    scheduler = torch.optim.lr_scheduler.ExponentialLR(optimizer, 0.9)
    with plan(**{"examples.micro_batch": 300}).open(
        model, optimizer, records(), keep={"scheduler": scheduler}
    ) as private:
        for step in private.steps():
            for batch in step:
                private.backward(losses_of(model, batch))
            scheduler.step()
    assert [text for text in private.statement.assumptions if "settings of the optimiser" in text]
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 0.9**private.planned)


def test_a_loop_whose_losses_are_of_their_batch_or_follow_from_done_is_not_reported():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, usual = train()
        scheduled = weighed(net(), lambda private: 1.0 + 0.1 * private.done)
    assert not told(usual)
    assert not [text for text in usual.statement.assumptions if "settings of the optimiser" in text]
    assert not told(scheduled)


class Count:
    """Of batches, kept with the run."""

    def __init__(self) -> None:
        self.seen = 0

    def state_dict(self):
        return {"seen": self.seen}

    def load_state_dict(self, state):
        self.seen = state["seen"]


def test_a_run_that_goes_on_reports_what_it_has_seen_before(tmp_path):
    def run(**options):
        count = Count()

        def more(private, losses):
            count.seen += 1

        return weighed(net(), lambda p: 1.0 + count.seen, behind=more, keep={"count": count}, out=tmp_path, **options)

    with pytest.warns(UserWarning, match=TOLD):
        first = run(steps=3)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        second = run(resume=True)
    assert told(first) == told(second) != []


# The words by which a run knows the sums of its steps again.


@pytest.mark.slow
def test_a_word_behind_a_torn_line_is_known_after_the_next_crash(tmp_path):
    path, source, total = tmp_path / "sums", RandomSource.from_seed(1), torch.ones(3)
    first = SumDigests(path, goes_on=False)
    for step in (0, 1):
        first.see(step, total, source)
    path.write_text(path.read_text()[:-10])  # torn within the last word
    second = SumDigests(path, goes_on=True)
    second.see(1, 2 * total, source)  # step 1 had no noise yet
    second.see(2, total, source)
    third = SumDigests(path, goes_on=True)
    for step in range(3):
        with pytest.raises(InputError, match=f"step {step + 1} was released with another sum"):
            third.see(step, 3 * total, source)


# A custom loop refuses what would break its guarantee, and bad input in a line.


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


@pytest.mark.parametrize("workers", slow_but([0, 1], 0))
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


def test_a_process_that_reads_and_dies_is_reported_in_a_line():
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
