"""What per-example clipping rests on, tried out on the user's own model."""
