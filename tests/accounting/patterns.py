"""Every pattern of participations, for brute force on short runs."""

from collections.abc import Iterator

from sfumato.accounting import Participation


def patterns(limits: Participation) -> Iterator[tuple[int, ...]]:
    """Every set of rounds that one unit may take part in, the empty one included; exponentially many."""
    stack: list[tuple[int, ...]] = [()]
    while stack:
        pattern = stack.pop()
        yield pattern
        if len(pattern) < limits.most:
            first = pattern[-1] + limits.period if pattern else 0
            stack.extend((*pattern, position) for position in range(first, limits.rounds))
