"""What several extensions need and the core does not: refusals by feature, functions of users, processes of ours."""
