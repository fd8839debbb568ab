"""Rate limiters that share their counts with those of Slidegate in Go, with redis-py 4.3 or later.

Copy this file, and window.lua or ar1.lua of the same version of Slidegate. docs/languages.md has an
example.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
from itertools import islice
from pathlib import Path
from typing import Callable, Iterator, NamedTuple

import redis
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.utils import str_if_bytes


class Limit(NamedTuple):
    """At most max units in any span of per. All times are in ms.

    A resolution applies only to window. 0 means the default.
    """

    max: int
    per: int
    resolution: int = 0

    def width(self, coarse: bool) -> int:
        """Returns the width of a bucket. Coarse is for units that max does not bound."""
        width = self.resolution or (1 if self.max <= 60 and not coarse else -(-self.per // 60))
        return max(width, -(-self.per // 255)) if coarse else width


class Usage(NamedTuple):
    """The usage of one limit.

    retry_after is the number of ms until it allows the same request. reset_after is the number of
    ms until nothing is in use.
    """

    used: int
    remaining: int
    retry_after: int
    reset_after: int


class Decision(NamedTuple):
    """The decision on an attempt. If it grants less than requested, retry after retry_after ms."""

    allowed: bool
    granted: int
    counted: int
    remaining: int
    retry_after: int
    at: int  # the time: in ms since 1970 for window, in us for ar1
    usage: list[Usage]


class Check(NamedTuple):
    """One of the attempts in allow_all: n units of an event under a limiter."""

    limiter: Limiter
    event: bytes
    n: int = 1


class JointDecision(NamedTuple):
    """The result of allow_all, with a decision on each check, in order.

    If it is not allowed, nothing was counted. retry_after is then the longest wait of the
    checks that deny.
    """

    allowed: bool
    retry_after: int
    decisions: list[Decision]


class Uncertain(Exception):
    """There was no reply, so the call may or may not have been counted. Do not repeat it."""


class Once(redis.Connection):
    """A connection that raises Uncertain for a lost reply. redis-py may retry other errors."""

    def read_response(self, *args, **kwargs):
        try:
            return super().read_response(*args, **kwargs)
        except redis.ResponseError:
            raise
        except Exception as e:
            self.disconnect()
            raise Uncertain(f"no reply, so this may or may not have been counted; do not repeat it: {e}") from e


def connect(url: str, cluster: bool = False, timeout: float = 1.0, **options):
    """Returns a client that sends no call twice, and waits at most timeout seconds for a reply."""
    options.update(connection_class=Once, retry=Retry(NoBackoff(), 0))
    options.update(socket_timeout=timeout, socket_connect_timeout=timeout)
    if not cluster:
        return redis.Redis.from_url(url, **options)
    # Unless reinitialize_steps is 0, a slot that moves can close the connections of other threads.
    return redis.RedisCluster.from_url(url, reinitialize_steps=0, **options)


def tag(event: bytes, secret: bytes | None = None) -> str:
    """Returns the hash tag of an event."""
    if secret is None and len(event) <= 128:
        return "".join(chr(c) if 0x20 < c < 0x7F and c not in b"{}%" and (i or c != 0x7E) else f"%{c:02X}"
                       for i, c in enumerate(event))
    digest = hashlib.sha256(event).digest() if secret is None else hmac.digest(secret, event, "sha256")
    return "~" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


class Limiter:
    """Limits events with a script, under a name that all callers share. It is safe for use by many threads.

    Any redis.RedisError means that nothing was counted. now is for tests only, in the unit of
    Decision.at.
    """

    def __init__(self, client, script: Path, name: str, limits: list[Limit], secret: bytes | None = None,
                 count_denied: bool = False, now: Callable[[], int] | None = None):
        if not re.fullmatch(r"[A-Za-z0-9._:-]{1,64}", name):
            raise ValueError(f"the name {name!r} does not have 1 to 64 bytes of A-Z a-z 0-9 . _ - :")
        if secret is not None and len(secret) < 16:
            raise ValueError("a secret has at least 16 random bytes")
        self._client, self._name, self._limits, self._secret = client, name, limits, secret
        self._count_denied, self._now = count_denied, now or (lambda: "")
        self._source = script.read_bytes()
        self._sha = hashlib.sha1(self._source).hexdigest()
        self._kind = {"window.lua": "w", "ar1.lua": "a"}[script.name]

    def key(self, event: bytes) -> str:
        """Returns the Redis key of an event."""
        if not event:
            raise ValueError("the event is empty; name its subject")
        return f"{self._name}:{{{tag(event, self._secret)}}}:{self._kind}"

    def allow(self, event: bytes, n: int = 1) -> Decision:
        """Counts n units, or none if a limit denies them."""
        return self._decide("count" if self._count_denied else "allow", event, n)

    def allow_each(self, events: list[bytes]) -> list[Decision | redis.RedisError | Uncertain]:
        """Counts one unit of each event, or none if a limit denies it, sequentially.

        Returns the decision on each event, or its error. One call to a server covers up to 64
        events. On a cluster, each event has its own call.
        """
        keys = [self.key(event) for event in events]
        size = 1 if isinstance(self._client, redis.RedisCluster) else 64
        return [d for i in range(0, len(keys), size) for d in self._allow_keys(keys[i:i + size])]

    @staticmethod
    def allow_all(checks: list[Check]) -> JointDecision:
        """Counts the units of all checks in one call, or none if one of them is denied.

        If one is denied, the decisions on the others still say that they would be allowed, with
        counted 0. All keys must differ. On a cluster, they must be in one hash slot: use the same
        event and the same secret for all. The limiters must share a client, use window.lua, and not
        count denied attempts.
        """
        keys = _joint_keys(checks)
        limits = [v for limiter, _, _ in checks for v in (len(limiter._limits), *limiter._limit_arguments(False))]
        reply = iter(checks[0].limiter._run("joint", keys, [n for _, _, n in checks], [len(keys), *limits]))
        decisions = [limiter._next_decision(n, reply) for limiter, _, n in checks]
        allowed = all(d.allowed for d in decisions)
        if not allowed:
            decisions = [d._replace(counted=0) for d in decisions]
        return JointDecision(allowed, max(d.retry_after for d in decisions), decisions)

    def allow_up_to(self, event: bytes, n: int) -> Decision:
        """Counts as many of n units as every limit allows."""
        return self._decide("countsome" if self._count_denied else "some", event, n)

    def peek(self, event: bytes, n: int = 1) -> Decision:
        """Returns what allow would return, and counts nothing."""
        return self._decide("peek", event, n)

    def charge(self, event: bytes, n: int) -> Decision:
        """Counts n units that were already used, even if a limit denies them."""
        d = self._decide("countsome", event, n, coarse=True)
        return d._replace(allowed=d.granted == n)

    def refund(self, event: bytes, d: Decision) -> None:
        """Gives back what a decision counted. Call it once for each decision."""
        if d.counted:
            self._call("refund", [self.key(event)], d.counted, self._count_denied, d.at)

    def reset(self, event: bytes) -> None:
        """Forgets the event."""
        self._call("reset", [self.key(event)], 1, self._count_denied)

    def _allow_keys(self, keys: list[str]) -> list[Decision | redis.RedisError | Uncertain]:
        verb = "count" if self._count_denied else "allow"
        try:
            reply = self._call(verb, keys, 1, self._count_denied)
        except (redis.RedisError, Uncertain) as e:
            return [e] * len(keys)
        size = len(reply) // len(keys)
        parts = [reply[i:i + size] for i in range(0, len(reply), size)]
        return [self._decision(verb, 1, part) if isinstance(part[0], int)
                else redis.ResponseError(str_if_bytes(part[0])) for part in parts]

    def _decide(self, verb: str, event: bytes, n: int, coarse: bool = False) -> Decision:
        return self._decision(verb, n, self._call(verb, [self.key(event)], n, coarse or self._count_denied))

    def _decision(self, verb: str, n: int, reply: list[int]) -> Decision:
        first, at, *rest = reply
        usage = [Usage(rest[i], max(0, limit.max - rest[i]), *rest[i + 1:i + 3])
                 for i, limit in zip(range(0, len(rest), 3), self._limits)]
        granted = first if verb in ("some", "countsome") else first * n
        counted = {"peek": 0, "count": n, "countsome": n}.get(verb, granted)
        wait = max(u.retry_after for u in usage) if granted < n else 0
        return Decision(granted > 0, granted, counted, min(u.remaining for u in usage), wait, at, usage)

    def _next_decision(self, n: int, reply: Iterator) -> Decision:
        """Takes the next decision from a joint reply, or raises the error that replaces it."""
        part = list(islice(reply, 2 + 3 * len(self._limits)))
        if not isinstance(part[0], int):
            raise redis.ResponseError(str_if_bytes(part[0]))
        return self._decision("allow", n, part)

    def _call(self, verb: str, keys: list[str], n: int, coarse: bool, *last: int) -> list:
        """Calls the script for the events of some keys, with n units each."""
        return self._run(verb, keys, [n] * len(keys), [*self._limit_arguments(coarse), *last])

    def _limit_arguments(self, coarse: bool) -> list[int]:
        """Returns the limits as arguments of the script."""
        arguments = []
        for limit in self._limits:
            arguments += [limit.per, limit.max] + ([limit.width(coarse)] if self._kind == "w" else [])
        return arguments

    def _run(self, verb: str, keys: list[str], units: list[int], rest: list[int]) -> list:
        """Calls the script for units of the events of some keys."""
        call = [len(keys), *keys, verb, self._now(), *units, *rest]
        try:
            return self._client.evalsha(self._sha, *call)
        except redis.exceptions.NoScriptError:  # the call certainly did not run
            return self._client.eval(self._source, *call)
        except redis.ResponseError as e:
            if not str(e).startswith("CROSSSLOT"):
                raise
            raise _several_slots(keys) from e
        except redis.exceptions.RedisClusterException as e:  # this is not a RedisError
            if len({self._client.keyslot(key) for key in keys}) > 1:
                raise _several_slots(keys) from e
            raise redis.ConnectionError(f"no node of the cluster answers: {e}") from e


def _several_slots(keys: list[str]) -> redis.ResponseError:
    return redis.ResponseError(f"nothing was counted, because the keys {', '.join(keys)} are in several hash slots of a "
                               "cluster; use the same event and the same secret for all, or one call for each")


def _joint_keys(checks: list[Check]) -> list[str]:
    """Returns the keys of checks, or raises ValueError if one call cannot decide on them."""
    if not checks:
        raise ValueError("allow_all has no checks; give it at least one")
    keys = []
    for limiter, event, _ in checks:
        key = limiter.key(event)
        if key in keys:
            raise ValueError(f"two checks of allow_all have the key {key}; add up their units in one")
        if limiter._kind != "w" or limiter._count_denied or limiter._client is not checks[0].limiter._client:
            raise ValueError(f"allow_all cannot decide on {key}: the limiters must share a client, use window.lua, "
                             "and not count denied attempts")
        keys.append(key)
    return keys
