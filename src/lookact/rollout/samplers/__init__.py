"""Samplers of a policy's replies: Hugging Face in process, vLLM in process, a vLLM server."""
