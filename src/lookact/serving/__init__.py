"""What every HTTP server here shares: bounds, checks before the routes, metrics, signals; and a client that retries."""
