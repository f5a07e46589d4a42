"""Accountants: from events to epsilon, each by its own bound."""
