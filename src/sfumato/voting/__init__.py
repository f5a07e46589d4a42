"""Voting: agents with private records answer public queries together, and a student learns from the answers."""
