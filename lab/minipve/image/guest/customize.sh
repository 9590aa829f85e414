#!/bin/sh
# Turn a plain Debian into the guests' image. Runs in the new root file system, as root, without network.
# /stage holds this directory and, if Python packages are requested, their wheels and requirements.
set -eu
cd /stage

# Python packages: exact versions, compiled to bytecode here because an emulated guest takes minutes for that.
if [ -d wheels ]; then
    python3 -m venv /opt/dask
    /opt/dask/bin/pip install --quiet --disable-pip-version-check --no-cache-dir --no-compile \
        --no-index --no-deps --find-links wheels --requirement wheels/requirements.txt
    cp wheels/requirements.txt /opt/dask/
    find /opt/dask -name tests -type d -prune -exec rm -rf {} +
    python3 -m compileall -q -j 0 /opt/dask/lib
fi

sh machine.sh

# A short boot: no coldplug, consoles, timers or generators. udev starts when the first device is plugged in.
while read -r unit; do ln -sf /dev/null "/etc/systemd/system/$unit"; done <masked.txt
rm -f /lib/systemd/system/sysinit.target.wants/systemd-udevd.service
mkdir -p /etc/systemd/system-generators
for generator in /lib/systemd/system-generators/*; do
    ln -s /dev/null "/etc/systemd/system-generators/${generator##*/}"
done
# The time service serves machines that reach a time server. The boot does not wait for it.
rm /etc/systemd/system/sysinit.target.wants/systemd-timesyncd.service
systemctl enable --quiet lab-time.timer
# D-Bus starts with its first client, such as hostnamectl.
rm /lib/systemd/system/multi-user.target.wants/dbus.service
rm /sbin/shutdown
install -m 755 shutdown /sbin/shutdown
ln -sf multi-user.target /lib/systemd/system/default.target

# Remove what must differ between clones. systemd creates the machine id, the cloud-init seed the rest.
rm -f /etc/ssh/ssh_host_* /etc/hostname /etc/resolv.conf
: >/etc/machine-id
rm -rf /stage /var/lib/apt/lists/* /var/cache/apt/*.bin /var/log/*.log /usr/share/doc /usr/share/man /usr/share/locale
