"""Speed, as ratios of two ways to do one thing, measured in turn within one run."""
