"""Extensions add rows to the tables of the core, which imports nothing of them."""
