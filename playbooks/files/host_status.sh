#!/bin/sh
# Prints the services, impairments and captures of a host as one JSON object. Without Python: importing Dask for its
# version takes an emulated machine seconds.
active() { systemctl is-active "$1" 2>/dev/null || true; }
version() { ls -d /opt/dask/lib/python3*/site-packages/distributed-*.dist-info 2>/dev/null | sed 's/.*-\(.*\)\.dist-info/\1/'; }
impaired=$(tc qdisc show 2>/dev/null | grep -cE ' (netem|tbf|htb|ingress) ')
captures=$(pgrep -c -x tcpdump)
cat <<JSON
{"scheduler": "$(active dask-scheduler)", "worker": "$(active dask-worker)", "dask": "$(version)",
 "impaired": ${impaired:-0}, "captures": ${captures:-0}, "load": "$(cut -d' ' -f1 /proc/loadavg)"}
JSON
