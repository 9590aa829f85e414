#!/bin/sh
# Add what a machine needs to boot and a container does not. Run by customize.sh in /stage of the new root.
set -eu
kernel=$(ls /lib/modules)

# For minipve, which boots the kernel directly (direct_boot.py): the unpacked kernel, an initramfs of busybox and drivers,
# and the command line.
mkdir -p /boot/direct
python3 vmlinux.py "/boot/vmlinuz-$kernel" /boot/direct/kernel
xargs <cmdline.txt >/boot/direct/cmdline
mkdir -p initramfs/bin initramfs/dev initramfs/proc initramfs/sys initramfs/run initramfs/root
cp /bin/busybox nocloud initramfs/bin/
cp init initramfs/init
xargs modprobe --show-depends --all --set-version "$kernel" <modules.txt | awk '/^insmod/ {print $2}' | sort -u |
    xargs cp --parents --target-directory=initramfs
cp "/lib/modules/$kernel/modules.builtin" "/lib/modules/$kernel/modules.order" "initramfs/lib/modules/$kernel/"
python3 unsign.py initramfs
depmod --basedir "$PWD/initramfs" "$kernel"
(cd initramfs && find . | busybox cpio --quiet -o -H newc) >/boot/direct/initrd

# For other Proxmox VE nodes: GRUB in one file, which bootable_disk.py enters in the boot sector. The GRUB package is
# not needed any more then.
mkdir -p /boot/grub
cp /usr/lib/grub/i386-pc/boot.img /boot/grub/
grub-mkimage --format=i386-pc --prefix=/boot/grub --output=/boot/grub/core.img \
    biosdisk ext2 linux normal echo serial terminal
sed "s/@KERNEL@/$kernel/" grub.cfg >/boot/grub/grub.cfg
apt-get -qq purge --autoremove grub-pc-bin >/dev/null

# Name and NICs come from the cloud-init seed. The guest agent's unit does not wait for udev.
install -m 755 nocloud /usr/local/sbin/nocloud
mkdir -p /var/lib/nocloud
systemctl enable --quiet qemu-guest-agent.service
