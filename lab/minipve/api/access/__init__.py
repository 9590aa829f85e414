"""/access: users, groups, roles, tokens, permissions."""
