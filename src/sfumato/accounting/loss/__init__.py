"""Privacy losses on a grid: rounded to either side, composed by Fourier transforms, read off as a curve."""
