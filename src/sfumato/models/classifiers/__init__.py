"""Networks with one output a class."""
