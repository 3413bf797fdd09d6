"""Writes the page that plays the built-in schedules in a browser, at sizes and costs that the reader chooses."""
