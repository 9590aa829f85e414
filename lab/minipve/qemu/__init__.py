"""What a VM is in life: QEMU, its command line, its monitor, its devices."""
