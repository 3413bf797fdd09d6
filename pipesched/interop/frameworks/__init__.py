"""Records schedules of frameworks by executing the framework's own code in a separate process."""
