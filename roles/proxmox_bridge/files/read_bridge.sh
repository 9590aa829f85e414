#!/bin/sh
# read_bridge.sh BRIDGE: print the bridge, then its ports, each as one line of JSON.
set -eu
ip -d -j link show dev "$1"
ip -d -j link show master "$1"
