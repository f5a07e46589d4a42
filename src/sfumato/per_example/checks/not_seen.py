"""What no trial of a model can see, in a sentence for the statement."""

NOT_SEEN = (
    "No example changes another one's gradient: this was tried out on rows of the data, in batches of several sizes, "
    "and by examples that were computed again by themselves while training. Not seen by such a trial is coupling that "
    "begins only with data, with a batch or after a number of steps that were not tried, and what a model draws from "
    "a generator of its own."
)
