"""A virtual machine's process: QEMU's command line, its monitor, the guest agent, power and hotplug."""
