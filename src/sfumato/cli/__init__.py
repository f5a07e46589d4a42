"""Commands, one file each; nothing is computed here."""
