#!/bin/sh
# Turn a plain Debian into the lab's golden image. Runs natively in the new root, as root, without network;
# /stage holds this directory, Dask's wheels and their requirements.
set -eu
cd /stage
kernel=$(ls /lib/modules)

# Dask: exact versions, compiled to bytecode here because a guest would need minutes.
python3 -m venv /opt/dask
/opt/dask/bin/pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile \
    --no-index --no-deps --find-links wheels --requirement wheels/requirements.txt
find /opt/dask -name tests -type d -prune -exec rm -rf {} +
python3 -m compileall -q -j 0 /opt/dask/lib

# Boot: an unpacked kernel and an initramfs of busybox and the drivers of an emulated machine.
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

# A short boot: no coldplug, no consoles, no timers, no generators; udev starts with the first device plugged in.
install -m 755 nocloud /usr/local/sbin/nocloud
mkdir -p /var/lib/nocloud
while read -r unit; do ln -sf /dev/null "/etc/systemd/system/$unit"; done <masked.txt
rm -f /lib/systemd/system/sysinit.target.wants/systemd-udevd.service
mkdir -p /etc/systemd/system-generators
for generator in /lib/systemd/system-generators/*; do
    ln -s /dev/null "/etc/systemd/system-generators/${generator##*/}"
done
systemctl enable --quiet qemu-guest-agent.service
rm /sbin/shutdown
install -m 755 shutdown /sbin/shutdown
ln -sf multi-user.target /lib/systemd/system/default.target

# Nothing that must differ between clones; systemd makes the machine id, the seed the rest.
rm -f /etc/ssh/ssh_host_* /etc/hostname /etc/resolv.conf
: >/etc/machine-id
rm -rf /stage /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*.log /usr/share/doc /usr/share/man /usr/share/locale
