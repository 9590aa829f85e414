"""Proxmox VE's rules for values: its schema, formats, privileges, kinds of guest."""
