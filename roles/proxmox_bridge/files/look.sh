#!/bin/sh
# look.sh BRIDGE [WORD...]: print the bridge, the node's CPU time, how rate caps are made, and what the lab itself uses.
#
# The lab's processes are those with a WORD in their command line (QEMU has its guest's MAC, ansible-playbook its
# trial) or as their PID namespace (containers). Then follow how long anything waited for memory and disks (pressure
# stall information), and the node's uptime.
bridge=$1
shift
words=$(for word in "${@:-dasklab}"; do printf '%s\n' "$word"; done)
ip -d -j link show dev "$bridge"
head -n 1 /proc/stat
tc actions list action police 2>/dev/null
tc actions list action mirred 2>/dev/null
pids=$(
    { grep -lsaF "$words" /proc/[0-9]*/cmdline; ls -l /proc/[0-9]*/ns/pid 2>/dev/null | grep -F "$words"; } |
        grep -o '/proc/[0-9]*' | sort -u
)
for pid in $pids; do cut -d')' -f2- "$pid/stat" 2>/dev/null; done |
    awk '{ticks += $12 + $13 + $14 + $15} END {print "lab_ticks", ticks + 0}'
sed -n 's/^some.*total=/memory_stall_us /p' /proc/pressure/memory 2>/dev/null
sed -n 's/^some.*total=/disk_stall_us /p' /proc/pressure/io 2>/dev/null
sed 's/ .*//; s/^/uptime_s /' /proc/uptime
