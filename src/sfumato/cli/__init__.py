"""The command line: one file a command, nothing computed here."""
