"""Small environments that test one claim: memory, and the noisy-TV problem."""
