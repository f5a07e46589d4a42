"""The questions that a disclosure of differential privacy has to answer, and what is said where nobody answered.

Guarantees that no question is left out: what the author of a run did not answer reads "not stated", never as if all
were well. The questions follow the reporting practice of Ponomareva et al. 2023, "How to DP-fy ML", section 5.3 (the
setting, the definition as it was instantiated, the accounting, what can be verified), the hazards of NIST SP 800-226
(2025: trust model, unit, correlated units, randomness and floating point), and public registries of deployments.

>>> answers = complete({"public_data": "None: all weights were drawn at random."})
>>> answers["public_data"], answers["preprocessing"]
('None: all weights were drawn at random.', 'not stated by the author of this run')
"""

from collections.abc import Mapping

from sfumato._check import InputError

NOT_STATED = "not stated by the author of this run"
"""The answer to a question that nobody answered."""

QUESTIONS: dict[str, str] = {
    "trust_model": "Who sees the records, or sums of them without noise, and is trusted with them?",
    "released": "What is released, and is every part of it covered?",
    "contribution": "How much can one unit contribute, and what makes sure of it?",
    "several_units": "Can one person be several units, or do units belong together?",
    "sampling_as_run": "Is the sampling that ran the sampling that is accounted?",
    "hyperparameter_tuning": "How were the settings chosen, and are the runs that served to choose them counted?",
    "preprocessing": "Did the preparation of the data look at private records?",
    "evaluation": "Were private records used to measure, to select or to stop, and is that covered?",
    "public_data": "Was other data used, pretrained weights included, and whose records are in it?",
    "other_releases": "What else is released from the same records, and over what time?",
    "budget_choice": "Who chose epsilon and delta, and why are they acceptable?",
    "cryptographic_noise": "Does the randomness come from a cryptographic source that nobody can repeat?",
    "floating_point": "Is the noise safe against attacks on the rounding of numbers?",
    "verification": "What can an outsider verify?",
}
"""Questions that the numbers of a statement do not answer, by the name of their answer."""


def complete(answers: Mapping[str, str]) -> dict[str, str]:
    """An answer to every question, in their order.

    Args:
        answers: by the names in `QUESTIONS`; one sentence or two each, for the public.

    Raises:
        InputError: there is no such question, or an answer is not text.
    """
    if not isinstance(answers, Mapping):
        raise InputError(f"disclosure must hold answers by name, such as public_data, got {answers!r}")
    for name, answer in answers.items():
        if name not in QUESTIONS:
            raise InputError(f"there is no question {name!r}; the questions are {', '.join(QUESTIONS)}")
        if not isinstance(answer, str) or not answer.strip():
            raise InputError(f"the answer to {name} must be a sentence, got {answer!r}; leave it out if there is none")
    return {name: answers.get(name, NOT_STATED) for name in QUESTIONS}
