"""Tables of other programs, whose columns are named as inputs, labels and users."""
