"""Runs and episodes in a browser: folders become plain records, and a page of its own draws them."""
