"""Many environments at once, in this process or in others."""
