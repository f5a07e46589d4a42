"""Private plans: rounds, participants, bound, noise and budget in one frozen object."""
