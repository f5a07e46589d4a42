"""Data sets divided by user, their splits, and the embedded glyphs."""
