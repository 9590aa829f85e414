"""Carry out a trial with Ansible: its orders, the playbook, and the files that the hosts return."""
