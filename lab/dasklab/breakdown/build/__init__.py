"""From the tables of a record to runs whose times are on one clock."""
