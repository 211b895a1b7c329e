from hypothesis import settings

# the same examples in every run, and no time limits
settings.register_profile("ops", deadline=None, derandomize=True)
settings.load_profile("ops")
