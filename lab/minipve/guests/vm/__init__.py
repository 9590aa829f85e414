"""Operations on a whole virtual machine: they combine its configuration, its disks and its QEMU process."""
