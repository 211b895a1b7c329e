"""Pure tensor functions: they import nothing else of the package."""
