"""What was found: the verdict as text and as JSON, its certificate, and the baselines that it is compared with."""
