"""Rooms: generated or loaded, rendered, mapped and asked about."""
