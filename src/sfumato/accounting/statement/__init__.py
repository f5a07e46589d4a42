"""The statement: what was promised to whom, and the questions that it answers."""
