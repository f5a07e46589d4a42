"""Options of the commands that read records and build models, one kind a file."""
