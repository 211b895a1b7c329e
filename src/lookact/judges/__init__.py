"""Judges that compare what two images show."""
