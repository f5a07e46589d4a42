"""Commands, one file a group."""
