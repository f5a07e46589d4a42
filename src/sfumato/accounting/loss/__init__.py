"""Privacy losses on a grid: rounded to either side, composed by Fourier transforms, read as a curve."""
