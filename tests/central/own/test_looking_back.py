"""What a loop remembers of examples is refused; what may be a schedule is in a warning and in the statement."""

import warnings

import pytest
import torch

from central.own.loops import STEPS, losses_of, net, plan, records, sgd, train
from sfumato._check import InputError

TOLD = "other losses or gradients"


def told(private) -> list[str]:
    return [sentence for sentence in private.statement.assumptions if TOLD in sentence]


def weighed(model, weight, *, steps=None, behind=lambda private, losses: None, **options):
    """A loop that multiplies the losses by `weight(private)`, and calls `behind` for each batch that is no trial."""
    with plan(micro_batch=300).open(model, sgd(model), records(), **options) as private:
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


def test_a_loop_that_counts_its_batches_is_told():
    """A schedule, or a memory: from the losses alone nobody can tell one from the other."""
    count = [0]

    def more(private, losses):
        count[0] += 1

    with pytest.warns(UserWarning, match=f"At step \\d+ .* {TOLD}"):
        private = weighed(net(), lambda private: 1.0 + count[0], behind=more)
    (sentence,) = told(private)
    assert "no bound on one example holds" in sentence


def test_what_a_loop_keeps_behind_its_inner_loop_and_reads_only_later_is_told():
    """Batches that are only tried say done=0: a look at those alone would see nothing."""
    model, kept = net(), [0.0]

    def run():
        with plan(micro_batch=300).open(model, sgd(model), records()) as private:
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
    with plan(micro_batch=300).open(model, optimizer, records()) as private:
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
    assert any("could not be made: the code raised an error" in each for each in private.statement.assumptions)


def test_a_first_step_that_draws_hardly_anything_is_tried_all_the_same():
    means: dict[int, torch.Tensor] = {}
    model = net()

    def keeping() -> None:
        few = plan(batch_size=1, micro_batch=1, steps=4)
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
    with plan(micro_batch=300).open(model, optimizer, records(), keep={"scheduler": scheduler}) as private:
        for step in private.steps():
            for batch in step:
                private.backward(losses_of(model, batch))
            scheduler.step()
    assert [text for text in private.statement.assumptions if "settings of the optimiser" in text]
    assert optimizer.param_groups[0]["lr"] == pytest.approx(0.5 * 0.9**private.planned)


def test_a_loop_whose_losses_are_of_their_batch_or_follow_from_done_is_not_told():
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


def test_a_run_that_goes_on_tells_what_it_has_seen_before(tmp_path):
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
