#!/bin/sh
# bridge_mode.sh BRIDGE flooding|learning AGEING_S: set the mode of a bridge and of its VXLAN ports, if it differs.
set -eu
bridge=$1 mode=$2 centiseconds=$(($3 * 100))
learning=$(test "$mode" = learning && echo 1 || echo 0)
current=$(ip -d link show dev "$bridge" | sed -n 's/.* ageing_time \([0-9]*\).*/\1/p')
if test "$current" != "$centiseconds"; then
    ip link set dev "$bridge" type bridge ageing_time "$centiseconds"
    echo changed
fi
for tunnel in $(ip -br link show master "$bridge" type vxlan | cut -d' ' -f1); do
    if ip -d link show dev "$tunnel" | grep -q nolearning; then now=0; else now=1; fi
    test "$now" = "$learning" && continue
    if test "$learning" = 1; then
        ip link set dev "$tunnel" type vxlan learning
    else
        ip link set dev "$tunnel" type vxlan nolearning
    fi
    bridge fdb flush dev "$tunnel" self dynamic
    echo changed
done
