"""VSI-Bench (arXiv:2412.14171) as it ships: rows in a file, videos in a folder, one reply a row."""
