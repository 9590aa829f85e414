"""Who may do what: accounts, tokens, tickets, roles, and the privileges that follow."""
