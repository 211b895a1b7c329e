"""Environments in another process or on another machine, over HTTP."""
