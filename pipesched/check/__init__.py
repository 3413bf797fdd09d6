"""The checks: each file checks one property and yields findings; `rows` lists the checks, and `checks` runs them."""
