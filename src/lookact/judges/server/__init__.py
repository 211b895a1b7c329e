"""A local VLM behind HTTP: requests of many clients are checked, queued, batched and answered."""
