"""Checks slidegate.py.

Its argument is a task in JSON, such as '{"mode": "vectors", "lua": "../../lua"}'.
cluster_test/languages_test.go has all tasks.
"""

import json
import re
import sys
import threading
import time
from pathlib import Path

import redis

from slidegate import Check, Decision, JointDecision, Limit, Limiter, Uncertain, Usage, connect, tag

TASK = json.loads(sys.argv[1])
LUA = Path(TASK["lua"])
SEVERAL_SLOTS = "in several hash slots of a cluster; use the same event"
NAMES = {"allowUpTo": "allow_up_to"}


class Recorder:
    """Replaces Redis: it keeps what is sent, and replies or raises what it is given."""

    sent = reply = None

    def evalsha(self, sha, count, *keys_and_argv):
        self.sent = [count, *map(str, keys_and_argv)]
        if isinstance(self.reply, Exception):
            raise self.reply
        return self.reply


def differ(what, got, want):
    """Ends the program if two values differ."""
    if got != want:
        sys.exit(f"{what}\n got {got}\nwant {want}")


def as_json(value):
    """Returns a decision, or a part of it, as the vectors have it."""
    if isinstance(value, (Decision, JointDecision, Usage)):
        return {re.sub("_a", "A", name): as_json(v) for name, v in value._asdict().items()}
    return [as_json(v) for v in value] if isinstance(value, list) else value


def secret_of(given):
    return bytes.fromhex(given["secret"]) if "secret" in given else None


def limiter_of(given, client, name, now):
    """Returns the limiter of a history or of a group."""
    limits = [Limit(**limit) for limit in given["limits"]]
    return Limiter(client, LUA / (given["script"] + ".lua"), name, limits, secret_of(given),
                   given.get("countDenied", False), now)


def play(history, client, name, before=lambda call: None, after=lambda call: None):
    """Makes the calls of a history, and compares the decisions."""
    event, call, decisions = bytes.fromhex(history["event"]), None, []
    limiter = limiter_of(history, client, name, lambda: call["now"])
    for call in history["calls"]:
        before(call)
        argument = [call["n"]] if "n" in call else [decisions[call["of"]]] if "of" in call else []
        d = getattr(limiter, NAMES.get(call["call"], call["call"]))(event, *argument)
        decisions.append(d)
        differ(f"decision of {call}", as_json(d), call.get("decision"))
        after(call)


def play_group(group, client, name, before=lambda call: None, after=lambda call: None):
    """Makes the calls about several events, and compares their decisions and errors."""
    call = None
    limiter = limiter_of(group, client, name, lambda: call["now"])
    for call in group["calls"]:
        before(call)
        answers = limiter.allow_each([bytes.fromhex(event) for event in call["events"]])
        got = [{"decision": as_json(a)} if isinstance(a, Decision) else {"error": str(a).replace(name, group["name"])}
               for a in answers]
        differ(f"answers of {call}", got, call["answers"])
        after(call)


def play_joint(joint, client, prefix, before=lambda call: None, after=lambda call: None):
    """Makes the joint calls, and compares their decisions or errors.

    The names of limiters get a prefix.
    """
    call = None
    limiters = [limiter_of({"script": "window", **given}, client, prefix + given["name"], lambda: call["now"])
                for given in joint["limiters"]]
    for call in joint["calls"]:
        before(call)
        checks = [Check(limiters[c["limiter"]], bytes.fromhex(c["event"]), c["n"]) for c in call["checks"]]
        try:
            got = {"joint": as_json(Limiter.allow_all(checks))}
        except redis.ResponseError as e:
            got = {"error": str(e).replace(prefix, "")}
        differ(f"answer of {call}", got, {k: call[k] for k in ("joint", "error") if k in call})
        after(call)


def refused(checks, reason):
    """Checks that allow_all raises an error with a reason, and so counts nothing."""
    try:
        sys.exit(f"allow_all answers {Limiter.allow_all(checks)}, where this was expected: {reason}")
    except (ValueError, redis.ResponseError) as e:
        if reason not in str(e):
            sys.exit(f"allow_all raises {e!r}, where this was expected: {reason}")


def refusals():
    """Checks the errors of allow_all about what one call cannot decide."""
    recorder = Recorder()

    def limiter(client=recorder, script="window.lua", **options):
        return Limiter(client, LUA / script, "refused", [Limit(1, 1000)], **options)

    refused([], "no checks")
    refused([Check(limiter(), b"a"), Check(limiter(), b"a")], "two checks of allow_all have the key refused:{a}:w")
    for other in (limiter(Recorder()), limiter(script="ar1.lua"), limiter(count_denied=True)):
        refused([Check(limiter(), b"a"), Check(other, b"b")], "cannot decide on refused:{b}:")
    differ("sent", recorder.sent, None)
    recorder.reply = redis.ResponseError("CROSSSLOT Keys in request don't hash to the same slot")  # as by a proxy
    refused([Check(limiter(), b"a"), Check(limiter(), b"b")], SEVERAL_SLOTS)


def vectors():
    """Compares keys, arguments and decisions with the vectors. It needs no Redis."""
    known = json.loads((LUA / "testdata/vectors.json").read_bytes())
    for k in known["keys"]:
        event, secret = bytes.fromhex(k["event"]), secret_of(k)
        differ(f"tag of {event}", tag(event, secret), k["tag"])
        for script, field in (("window.lua", "window"), ("ar1.lua", "ar1")):
            differ(f"key of {event}", Limiter(None, LUA / script, k["name"], [], secret).key(event), k[field])
    for h in known["histories"]:
        recorder = Recorder()

        def before(call):
            recorder.sent, recorder.reply = None, call.get("reply")

        def after(call):
            differ(f"arguments of {call}", recorder.sent, [1, call["key"], *call["argv"]] if "argv" in call else None)

        play(h, recorder, h["name"], before, after)
    recorder = Recorder()

    def before(call):
        recorder.reply = [v.encode() if isinstance(v, str) else v for v in call["reply"]]

    def after(call):
        differ(f"arguments of {call}", recorder.sent, [len(call["keys"]), *call["keys"], *call["argv"]])

    for g in known["groups"]:
        play_group(g, recorder, g["name"], before, after)
    for j in known["joints"]:
        play_joint(j, recorder, "", before, after)
    refusals()
    recorder.reply = Uncertain()
    lost = Limiter(recorder, LUA / "window.lua", "lost", [Limit(1, 1000)]).allow_each([b"a", b"b"])
    differ("answers without a reply", lost, [recorder.reply] * 2)


def on_redis():
    """Plays the histories, groups and joint calls of the vectors on Redis, under names of its own."""
    client = connect(TASK["url"], TASK["cluster"], timeout=TASK["timeout"])
    known = json.loads((LUA / "testdata/vectors.json").read_bytes())
    for i, h in enumerate(known["histories"]):
        play(h, client, f"{TASK['name']}-{i}")
    for i, g in enumerate(known["groups"]):
        name = f"{TASK['name']}-groups-{i}"
        client.set(limiter_of(g, client, name, None).key(bytes.fromhex(g["foreign"])), "hello")
        play_group(g, client, name)
    for j in known["joints"]:
        joint_on_redis(j, client)
    events = [b"%d" % i for i in range(130)]  # more than one call is about
    limiter = Limiter(client, LUA / "window.lua", f"{TASK['name']}-many", [Limit(1, 3_600_000)])
    for allowed in (True, False):
        differ("many events", [d.allowed for d in limiter.allow_each(events)], [allowed] * len(events))


def joint_on_redis(joint, client):
    """Plays joint calls. On a cluster, those whose keys are in several hash slots are an error."""
    given, prefix = {"script": "window", **joint["limiters"][0]}, TASK["name"] + "-"
    first = limiter_of(given, client, prefix + given["name"], None)
    events = {bytes.fromhex(c["event"]) for call in joint["calls"] for c in call["checks"]}
    if TASK["cluster"] and len(events) > 1:
        refused([Check(first, event) for event in events], SEVERAL_SLOTS)
        return
    client.set(first.key(bytes.fromhex(joint["foreign"])), "hello")
    play_joint(joint, client, prefix)


def shared_limiter():
    """Returns the limiter of the task, and its event."""
    client = connect(TASK["url"], TASK["cluster"], timeout=TASK["timeout"])
    limits = [Limit(**limit) for limit in TASK["limits"]]
    return Limiter(client, LUA / "window.lua", TASK["name"], limits, secret_of(TASK)), bytes.fromhex(TASK["event"])


def ready():
    """Reports to the test, and waits for it."""
    print("ready", flush=True)
    sys.stdin.readline()


def crowd():
    """Runs callers that take one unit each, and prints their decisions.

    A caller that the last limit denies gives up.
    """
    limiter, event = shared_limiter()
    limiter.peek(event)
    log, failed = [], []

    def caller():
        try:
            while True:
                try:
                    d = limiter.allow(event)
                except redis.RedisError:  # nothing was counted, as while a slot moves: ask again
                    time.sleep(0.02)
                    continue
                log.append([d.allowed, d.at])
                if d.allowed or d.usage[-1].retry_after > 0:
                    return
                time.sleep(min(d.retry_after, 20) / 1000)
        except Exception as e:  # a thread would only print it
            failed.append(e)

    threads = [threading.Thread(target=caller) for _ in range(TASK["callers"])]
    ready()
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    differ("errors", failed, [])
    print(json.dumps(log))


def lost():
    """Calls before and after a call whose reply is lost, and prints how many units are used."""
    limiter, event = shared_limiter()
    limiter.allow(event)
    ready()
    try:
        sys.exit(f"a lost reply is no error, but {limiter.allow(event)}")
    except Uncertain:
        ready()
    while True:
        try:
            limiter.peek(event)
            break
        except (Uncertain, redis.RedisError):  # it connects again
            time.sleep(0.02)
    print(limiter.allow(event).usage[0].used)


def gone():
    """Makes calls once no node answers. Each fails as the class Limiter says."""
    limiter, event = shared_limiter()
    limiter.allow(event)
    ready()
    for _ in range(3):
        try:
            sys.exit(f"nobody answers, but {limiter.allow(event)}")
        except (Uncertain, redis.RedisError) as e:
            print(type(e).__name__)


{"vectors": vectors, "redis": on_redis, "crowd": crowd, "lost": lost, "gone": gone}[TASK["mode"]]()
