"""Publishing what a vote cost on the votes that were cast: a second release of the run, with noise and a cost.

- **Unit, sensitivity.** Those of the votes; the noise follows the smooth sensitivity of the cost
  (`accounting.votes.release`), which is computed from the votes and released with noise, too.
- **What may be claimed.** A bound at this data set and with a stated confidence, not differential privacy: it stands
  among a statement's alternatives. The statement's own epsilon counts this release.
- **Order.** Chosen with the plan, before anybody votes.
"""

import numpy as np
import torch

from sfumato._random import RandomSource
from sfumato.accounting import ReleasedCost, VoteSensitivity, release_cost
from sfumato.runs import Run
from sfumato.voting.plan import VotingSettings
from sfumato.voting.question import Added, Answers

PHASE = "cost of votes"
"""What the ledger calls this release."""

_CONFIDENCE = 0.95
_NUMBERS = ("noisy_cost", "noisy_log_sensitivity", "cost_upper", "release_cost", "worst")


def publish(
    run: Run, plan: VotingSettings, sums: np.ndarray | None, answers: Answers, added: Added
) -> ReleasedCost | None:
    """Release the cost of the answers, or read what a run that goes on has released; None where the plan does not ask.

    Args:
        run: has released the answers.
        plan: the vote's.
        sums: float [queries, classes], the counts in votes before noise; None where a run that is complete goes on.
        answers: what was opened.
        added: the noise in it.
    """
    event = plan.cost_event()
    if event is None:
        return None

    def draw(source: RandomSource) -> dict[str, torch.Tensor]:
        assert sums is not None
        sensitivity = VoteSensitivity(
            plan.answer_event(),
            plan.adjacency,
            classes=sums.shape[1],
            order=plan.publish_order,
            noise_std=added.counts,
            step=added.step,
        )
        found = release_cost(
            sums,
            sensitivity,
            beta=event.beta,
            cost_noise=event.cost_noise,
            sensitivity_noise=event.sensitivity_noise,
            noise=source.stream("cost of votes"),
            confidence=_CONFIDENCE,
        )
        return {"numbers": torch.tensor([getattr(found, name) for name in _NUMBERS], dtype=torch.float64)}

    numbers = run.release(PHASE, event, draw)["numbers"].tolist()
    return ReleasedCost(
        level=plan.level,
        adjacency=plan.adjacency,
        order=plan.publish_order,
        queries=len(answers.answered),
        confidence=_CONFIDENCE,
        **dict(zip(_NUMBERS, numbers, strict=True)),
    )
