"""One kind of layer a file: how its per-example gradients are found."""
