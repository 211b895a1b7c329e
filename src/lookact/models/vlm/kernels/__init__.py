"""Faster paths of small models on a CPU, each with the Hugging Face module as its oracle."""
