"""Firewall rules of the cluster, of nodes, guests and security groups."""

from __future__ import annotations

from typing import Any

from minipve.api.firewall.options import ALL, CLUSTER, check_digest, scope
from minipve.api.routing import route
from minipve.base.errors import ApiError
from minipve.config.rules.formats import split_list
from minipve.node import firewall
from minipve.node.call import Call

_CONTROL = {"node", "vmid", "group", "pos", "digest", "moveto", "delete"}
Rule = dict[str, Any]


def _rules(call: Call, config: firewall.Config) -> list[Rule]:
    rules: list[Rule] = config["rules"]
    if "group" in call.params:
        if call["group"] not in config["groups"]:
            raise ApiError(f"no such security group '{call['group']}'")
        rules = config["groups"][call["group"]]["rules"]
    return rules


def _at(call: Call, rules: list[Rule]) -> Rule:
    if call["pos"] >= len(rules):
        raise ApiError(f"no rule at position {call['pos']}")
    rule: Rule = rules[call["pos"]]
    return rule


def _settings(call: Call) -> Rule:
    return {key: value for key, value in call.params.items() if key not in _CONTROL}


def _declare(path: str) -> None:
    @route("GET", path)
    def index(call: Call) -> list[Rule]:
        rules = _rules(call, firewall.load(call.node, scope(call)))
        digest = firewall.digest(rules)
        return [rule | {"pos": position, "digest": digest} for position, rule in enumerate(rules)]

    @route("POST", path)
    def create(call: Call) -> None:
        """Add a rule at the first position, disabled unless ``enable`` is set."""
        with firewall.change(call.node, scope(call)) as config:
            rules = _rules(call, config)
            check_digest(call, firewall.digest(rules))
            settings = {key: value for key, value in _settings(call).items() if value != ""}
            rules.insert(0, {"enable": 0} | settings)

    @route("GET", f"{path}/{{pos}}")
    def read(call: Call) -> Rule:
        rules = _rules(call, firewall.load(call.node, scope(call)))
        return _at(call, rules) | {"pos": call["pos"], "digest": firewall.digest(rules)}

    @route("PUT", f"{path}/{{pos}}")
    def update(call: Call) -> None:
        """Change a rule, or with ``moveto`` only move it before the rule at that position."""
        with firewall.change(call.node, scope(call)) as config:
            rules = _rules(call, config)
            check_digest(call, firewall.digest(rules))
            rule, target = _at(call, rules), call.get("moveto", call["pos"])
            if target != call["pos"]:
                rules.insert(target, rule)
                del rules[call["pos"] + (target < call["pos"])]
                return
            rule |= _settings(call)
            emptied = [key for key, value in rule.items() if value == ""]
            for key in [*split_list(call.get("delete", "")), *emptied]:
                rule.pop(key, None)

    @route("DELETE", f"{path}/{{pos}}")
    def delete(call: Call) -> None:
        with firewall.change(call.node, scope(call)) as config:
            rules = _rules(call, config)
            check_digest(call, firewall.digest(rules))
            _at(call, rules)
            del rules[call["pos"]]


for _path in (*(f"{path}/rules" for path in ALL), f"{CLUSTER}/groups/{{group}}"):
    _declare(_path)
