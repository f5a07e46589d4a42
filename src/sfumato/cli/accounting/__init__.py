"""`account`, `calibrate`, `compare`, `extrapolate`, `ledger …`: what runs cost, before and after."""
