"""Schedules of frameworks, recorded by executing the framework's own code in a separate process."""
