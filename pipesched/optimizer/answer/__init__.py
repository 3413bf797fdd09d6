"""What was found: the verdict, in words and as JSON, its certificate, and what stands beside it."""
