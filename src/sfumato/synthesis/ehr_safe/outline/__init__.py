"""The outline of a record, which is drawn before any visit is told: when it begins and ends, and what it comes to."""
