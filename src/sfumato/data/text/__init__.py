"""Texts of users as sequences of tokens, for models that tell the next one."""
