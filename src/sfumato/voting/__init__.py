"""Agents with private data vote on public queries; the noisy counts label what a student learns from."""
