"""Guests of both kinds: real machines (qemu, vm) and real containers (lxc, container)."""
