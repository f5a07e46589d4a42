"""What a loop remembers of examples from one step to the next is told, in a warning and in the statement."""

import warnings

import pytest

from central.own.loops import losses_of, net, plan, records, sgd, train

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


def test_a_loop_that_weighs_losses_by_those_of_earlier_steps_is_told():
    mean = [1.0]

    def remember(private, losses):
        mean[0] = 0.9 * mean[0] + 0.1 * float(losses.mean())

    with pytest.warns(UserWarning, match=f"At step 2 .* {TOLD}"):
        private = weighed(net(), lambda private: mean[0], behind=remember)
    (sentence,) = told(private)
    assert "no bound on one example holds" in sentence


def test_a_loop_whose_losses_are_of_their_batch_or_follow_from_done_is_not_told():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        _, usual = train()
        scheduled = weighed(net(), lambda private: 1.0 + 0.1 * private.done)
    assert not told(usual)
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
