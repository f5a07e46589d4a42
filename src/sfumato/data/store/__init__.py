"""Records on disk, written in constant memory and opened mapped."""
