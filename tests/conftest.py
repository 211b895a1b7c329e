from hypothesis import settings

# the same examples in every run, and no time limits: a busy machine is no failure
settings.register_profile("lookact", derandomize=True, deadline=None)
settings.load_profile("lookact")
