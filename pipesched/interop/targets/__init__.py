"""Write a schedule in the format of a trainer."""
