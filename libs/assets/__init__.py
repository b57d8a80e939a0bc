"""The kernel every context shares: the asset itself, its object keys, its public URLs and its tag."""
