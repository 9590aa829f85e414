#!/bin/sh
# What a machine needs to boot, besides what any guest is: run by customize.sh, in /stage of the new root.
set -eu
kernel=$(ls /lib/modules)

# For the local endpoint: an unpacked kernel, an initramfs of busybox and the drivers of an emulated machine,
# and the entry that names both.
python3 vmlinux.py "/boot/vmlinuz-$kernel" "/boot/vmlinux-$kernel"
mkdir -p initramfs/bin initramfs/dev initramfs/proc initramfs/sys initramfs/run initramfs/root
cp /bin/busybox nocloud initramfs/bin/
cp init initramfs/init
xargs modprobe --show-depends --all --set-version "$kernel" <modules.txt | awk '/^insmod/ {print $2}' | sort -u |
    xargs cp --parents --target-directory=initramfs
cp "/lib/modules/$kernel/modules.builtin" "/lib/modules/$kernel/modules.order" "initramfs/lib/modules/$kernel/"
python3 unsign.py initramfs
depmod --basedir "$PWD/initramfs" "$kernel"
(cd initramfs && find . | busybox cpio --quiet -o -H newc) >/boot/initrd-lab.img
mkdir -p /boot/loader/entries
{
    echo "title Debian for the lab"
    echo "version $kernel"
    echo "linux /boot/vmlinux-$kernel"
    echo "initrd /boot/initrd-lab.img"
    echo "options $(xargs <cmdline.txt)"
} >/boot/loader/entries/lab.conf

# For real nodes: GRUB with all it needs in one file, which bootable.py tells the boot sector about. Its
# package has done its work then.
mkdir -p /boot/grub
cp /usr/lib/grub/i386-pc/boot.img /boot/grub/
grub-mkimage --format=i386-pc --prefix=/boot/grub --output=/boot/grub/core.img \
    biosdisk ext2 linux normal echo serial terminal
sed "s/@KERNEL@/$kernel/" grub.cfg >/boot/grub/grub.cfg
apt-get -qq purge --autoremove grub-pc-bin >/dev/null

# Its NICs and its name come from the seed, its guest agent has no udev to wait for.
install -m 755 nocloud /usr/local/sbin/nocloud
mkdir -p /var/lib/nocloud
systemctl enable --quiet qemu-guest-agent.service
