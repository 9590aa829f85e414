"""The options of a cluster of two workers, as most tests of records need it."""

LOCAL = {"n_workers": 2, "threads_per_worker": 1, "dashboard_address": ":0"}
