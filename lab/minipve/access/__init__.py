"""Access control: users, tokens, tickets, roles and privileges."""
