"""Errors of API calls: refused, lost or unanswered, each as one line with the next step."""

from __future__ import annotations

import re
from urllib.parse import urlsplit

import requests

from dasklab.errors import LabError
from dasklab.machines.endpoint.guest_kinds import BY_PATH, KINDS, VM

# Status codes of proxies and of pveproxy when the daemon behind them fails. Reads are then repeated.
GATEWAY = {
    **dict.fromkeys((502, 503, 504), "a proxy cannot reach the API behind it"),
    595: "pveproxy cannot reach the daemon or the other node",
    596: "the connection between pveproxy and the daemon broke",
    597: "the daemon's answer is incomplete",
    598: "pveproxy gave up waiting for the daemon",
    599: "pveproxy did not understand the request",
}
GATEWAY_HINT = "try again; if it happens again, on the node: systemctl status pveproxy pvedaemon"
AGAIN_HINT = (
    "the change may or may not have been made; run the same command again, it checks the present state first"
)
CA_HINT = "set ca_file to the endpoint's CA (PROXMOX_CA_FILE; on a node: /etc/pve/pve-root-ca.pem)"
EXPIRED_HINT = (
    "renew it, as root on the node: pvecm updatecerts --force; replace a pveproxy-ssl.pem of your own"
)
QUORUM_HINT = "start the cluster's other nodes, or repair their network; on a node: pvecm status"
PROTECTED_HINT = "to allow its removal, as root on the node: {tool} set {vmid} --protection 0"
NAME_HINT = "set PROXMOX_HOST to a name or address that the certificate contains"
PORT_HINT = "check that this is the API's address and port (8006), without a proxy in between"
LOCK_HINT = "wait for that operation; if none is running, as root on the node: {line}"
REACH_HINT = "check that it is running, that the address is correct, and that no firewall blocks it"


class CallError(LabError):
    """A call was refused or not answered. ``cause`` is the message without the name of the call."""

    def __init__(self, where: str, cause: str, hint: str | None = None) -> None:
        super().__init__(f"{where}: {cause}", hint)
        self.cause = cause


class TransientError(CallError):
    """The answer was lost, or the endpoint could not be reached for the moment.

    Args:
        where: the call.
        cause: what happened.
        hint: the next step.
        maybe_received: the endpoint may have received the call. Reads are repeated anyway, changes are not.
        only_if_it_answered: repeat only if the endpoint has answered before. Otherwise its address is
            probably wrong, and the user should not wait for the message.
    """

    def __init__(
        self,
        where: str,
        cause: str,
        hint: str | None,
        *,
        maybe_received: bool = True,
        only_if_it_answered: bool = False,
    ) -> None:
        super().__init__(where, cause, hint)
        self.maybe_received = maybe_received
        self.only_if_it_answered = only_if_it_answered

    def may_be_repeated(self, *, read: bool, has_answered: bool) -> bool:
        """Return whether to repeat the call.

        Args:
            read: the call changes nothing.
            has_answered: the endpoint has answered before.
        """
        return (read or not self.maybe_received) and (has_answered or not self.only_if_it_answered)


class ForbiddenError(CallError):
    """The token lacks a privilege for this call."""


class RejectedError(CallError):
    """The token itself is not accepted."""


def complete(answer: requests.Response, url: str) -> None:
    """Check an answer before proxmoxer reads it, and put the complete error text into its reason.

    proxmoxer takes an error's text from the status line, which has only the text's first line.

    Raises:
        CallError: this is not an answer of a Proxmox VE API.
    """
    is_error = answer.status_code >= 400
    try:
        body = answer.json()
    except ValueError:  # an error may come with an empty body or with a proxy's HTML page
        body = {} if is_error else None
    if not isinstance(body, dict) or not (is_error or "data" in body):
        start = " ".join(answer.text[:60].split())
        call = f"{answer.request.method} {urlsplit(answer.request.url or '').path.removeprefix('/api2/json')}"
        raise CallError(f"{url}: {call}", f"this is not an answer of a Proxmox VE API: {start!r}", PORT_HINT)
    reason = str(body.get("message") or answer.reason or "no reason given")
    answer.reason = "; ".join(reason.strip().splitlines())


def refusal(status: int, reason: str, errors: object, call: str, url: str, token: str) -> CallError:
    """Return the error for a refused call.

    Args:
        status: HTTP status, or one of those that pveproxy adds.
        reason: the endpoint's error message.
        errors: the endpoint's messages about parameters, by name, if there are any.
        call: method and path.
        url: the endpoint's address.
        token: the token's full name.
    """
    if status == 401:
        hint = "check its ID and its secret; 'dasklab doctor' prints the commands that create one"
        return RejectedError(f"{url}: token {token}", f"it is not accepted ({reason})", hint)
    if status == 403:
        hint = "'dasklab doctor' prints the commands that grant the missing privilege"
        return ForbiddenError(f"{url}: {call}", reason, hint)
    if status in GATEWAY:
        hint = GATEWAY_HINT if call.startswith("GET ") else AGAIN_HINT
        return TransientError(f"{url}: {call}", f"{status} {reason} ({GATEWAY[status]})", hint)
    by_parameter = errors if isinstance(errors, dict) else {}
    details = "; ".join(f"{k}: {v}".strip() for k, v in by_parameter.items() if isinstance(v, str))
    cause = f"{status} {reason}{f' ({details})' if details else ''}"
    return CallError(f"{url}: {call}", cause, _hint(reason, call))


def _hint(reason: str, call: str) -> str | None:
    """Return the next step after a refusal, where its text tells."""
    if "no quorum" in reason:
        return QUORUM_HINT
    if protected := re.search(r"can't remove (VM|CT) (\d+) - protection mode enabled", reason):
        tool = {"VM": "qm", "CT": "pct"}[protected[1]]
        return PROTECTED_HINT.format(tool=tool, vmid=protected[2])
    if locked := re.search(r"is locked(?: \((\w+)\))?", reason):
        guest = re.search(r"/(qemu|lxc)/(\d+)", call)
        kind = KINDS[BY_PATH[guest[1]]] if guest else VM
        return LOCK_HINT.format(line=kind.unlock_line(guest[2] if guest else "VMID", locked[1] or ""))
    return None


def _certificate_hint(error: str) -> str:
    if "has expired" in error:
        return EXPIRED_HINT
    return NAME_HINT if "mismatch" in error else CA_HINT


def no_answer(error: requests.RequestException, call: str, url: str) -> CallError:
    """Return the error for a call without an answer."""
    cause, read = _innermost(error), call.startswith("GET ")
    if isinstance(error, requests.exceptions.SSLError) and "CERTIFICATE_VERIFY_FAILED" in str(error):
        hint = _certificate_hint(str(error))
        return CallError(url, f"its certificate cannot be verified ({_message(cause)})", hint)
    if "WRONG_VERSION_NUMBER" in str(error):
        return CallError(url, "the server there does not speak TLS", PORT_HINT)
    if isinstance(error, requests.exceptions.ConnectTimeout):
        text = "nothing answers there (connecting timed out)"
        return TransientError(url, text, REACH_HINT, maybe_received=False, only_if_it_answered=True)
    hint = GATEWAY_HINT if read else AGAIN_HINT
    if isinstance(error, requests.exceptions.ReadTimeout):
        return TransientError(f"{url}: {call}", "no answer in time", hint, only_if_it_answered=True)
    if isinstance(cause, ConnectionRefusedError):
        text = "nothing listens there (connection refused)"
        return TransientError(url, text, REACH_HINT, maybe_received=False)
    if isinstance(error, requests.exceptions.ChunkedEncodingError):
        return TransientError(f"{url}: {call}", f"the answer is incomplete ({_message(cause)})", hint)
    if isinstance(error, requests.ConnectionError):
        if _never_connected(error):
            text = f"it cannot be reached ({_message(cause)})"
            return TransientError(url, text, REACH_HINT, maybe_received=False, only_if_it_answered=True)
        return TransientError(f"{url}: {call}", f"the connection was cut ({_message(cause)})", hint)
    return CallError(url, f"it cannot be reached ({_message(cause)})", REACH_HINT)


def _never_connected(error: requests.ConnectionError) -> bool:
    """Return whether connecting failed (no such name, no route). Only the names of urllib3's errors tell."""
    return any(word in repr(error) for word in ("NewConnectionError", "NameResolutionError", "ProxyError"))


def _innermost(error: BaseException) -> BaseException:
    """Return the original error, which requests and urllib3 have wrapped several times."""
    inner = getattr(error, "reason", None) or error.__cause__ or error.__context__
    inner = inner or next((a for a in reversed(error.args) if isinstance(a, BaseException)), None)
    return _innermost(inner) if isinstance(inner, BaseException) else error


def _message(error: BaseException) -> str:
    message = getattr(error, "verify_message", None) or getattr(error, "strerror", None) or error
    return str(message) or type(error).__name__
