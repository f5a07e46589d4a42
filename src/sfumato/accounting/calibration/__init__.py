"""Calibration: the noise, the steps or the rate that meet a target."""
