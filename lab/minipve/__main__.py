"""``python -m lab.minipve``: the endpoint's verbs without the rest of the toolkit."""

from lab.minipve.cli import minipve

minipve(prog_name="minipve")
