"""Policies, critics, world models and reward models."""
