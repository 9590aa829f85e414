#!/bin/sh
# What runs in a machine and what is done to its links; one JSON object.
active() { systemctl is-active "$1" 2>/dev/null || true; }
version() { /opt/dask/bin/python -c 'import distributed; print(distributed.__version__)' 2>/dev/null; }
impaired=$(tc qdisc show 2>/dev/null | grep -cE ' (netem|tbf|htb|ingress) ')
captures=$(pgrep -c -x tcpdump)
cat <<JSON
{"scheduler": "$(active dask-scheduler)", "worker": "$(active dask-worker)", "dask": "$(version)",
 "impaired": ${impaired:-0}, "captures": ${captures:-0}, "load": "$(cut -d' ' -f1 /proc/loadavg)"}
JSON
