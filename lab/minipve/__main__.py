"""``python -m minipve``: the endpoint's verbs without the rest of the toolkit."""

from minipve.cli import minipve

minipve(prog_name="minipve")
