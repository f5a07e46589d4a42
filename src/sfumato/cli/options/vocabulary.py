"""Which vocabulary a run counts in its own texts, before its first round."""

from typing import Any

from sfumato._check import InputError, positive, whole
from sfumato.cli.options.users import DataOptions
from sfumato.cli.own_model import is_own
from sfumato.federated import PrivateVocabulary
from sfumato.training import PrivatePlan

_SHARE = 0.1  # of epsilon, for the count


def refuse_uncountable(options: Any) -> None:
    """Refuse what does not go with a vocabulary that is counted; without the records.

    Raises:
        InputError: something does not.
    """
    if not _counts(options):
        return
    if not isinstance(options.plan, PrivatePlan):
        raise InputError(
            f"{options.plan.name} has no guarantee that a private vocabulary could be a part of; give --vocabulary FILE"
        )
    if is_own(options.model.model):
        raise InputError(
            f"--model {options.model.model} has a vocabulary of its own size, and --vocabulary private decides it only "
            "in the run; take lstm or transformer, or train from Python (fit(…, opening=…))"
        )
    if options.model.weights is not None:
        raise InputError(
            "--weights are of a model with another vocabulary than --vocabulary private will release; leave them out"
        )
    if options.data.vocabulary_noise is None and options.budget.epsilon is None:
        raise InputError(
            "--vocabulary private with --noise-multiplier needs a --vocabulary-noise, 4 for example; with --epsilon "
            "it is chosen"
        )


def counted_vocabulary(options: Any, population: int) -> PrivateVocabulary | None:
    """The rule by which the run counts its vocabulary, with its noise; None where it counts none.

    Args:
        options: all options of the command.
        population: public number of users.

    Raises:
        InputError: a number out of range, or no noise is enough.
    """
    if not _counts(options):
        return None
    data, plan = options.data, options.plan
    if data.vocabulary_noise is not None:
        positive(vocabulary_noise=data.vocabulary_noise)
    if data.vocabulary_words is not None:
        whole(vocabulary_words=data.vocabulary_words)
    given = {} if data.words_per_user is None else {"words_per_user": data.words_per_user}
    delta = plan.delta_for(population)
    rule = PrivateVocabulary(noise_multiplier=data.vocabulary_noise, size=data.vocabulary_words, **given).decided(delta)
    if rule.noise_multiplier is not None:
        return rule
    adjacency = plan.sampler(population).adjacency
    return rule.calibrate(epsilon=_SHARE * options.budget.epsilon, delta=delta, adjacency=adjacency)


def _counts(options: Any) -> bool:
    return isinstance(options.data, DataOptions) and options.data.counts_vocabulary
