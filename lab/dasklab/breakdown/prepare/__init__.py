"""From the tables of a record to repeats whose times are on one clock."""
