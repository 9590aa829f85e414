"""What commands that use a lab share: its inventory, lock, playbooks and hosts."""
