"""Features of pictures by fixed public functions, without training: what neighbours are looked for in."""
