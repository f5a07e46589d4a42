"""What no trial of a model can see, in a sentence for the statement.

>>> "while training" in not_seen(1), "while training" in not_seen(2)
(False, True)
"""

from sfumato.per_example.checks.recheck import Recheck


def not_seen(steps: int) -> str:
    """What was tried in a run of so many steps, and what no trial sees.

    How many examples a step drew is private, and so is which steps had somebody to look at.

    Args:
        steps: that ran, or are planned.
    """
    tried = "on rows of the data in batches of several sizes before the first step"
    looked = sum(map(Recheck.due, range(steps)))
    if looked:
        count = "one step" if looked == 1 else f"{looked} of the steps"
        tried += f", and while training at {count}, on one example by itself wherever there were two at once"
    return (
        f"No example changes another one's gradient: this was tried out {tried}. Not seen by such a trial is coupling "
        "that begins only with data, with a batch or after a number of steps that were not tried, one that turns "
        "gradients in large batches and keeps their norms and losses, what is kept outside "
        "of the model's own attributes, and what a model draws from a generator of its own."
    )
