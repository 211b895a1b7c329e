"""Episodes, demonstrations and preferences: on disk and as batches."""
