/**
 * Checks slidegate.ts.
 *
 * Its argument is a task in JSON, such as '{"mode": "vectors", "lua": "../../lua"}'.
 * cluster_test/languages_test.go has all tasks.
 */
import { deepStrictEqual, rejects } from "node:assert";
import { once } from "node:events";
import { readFileSync } from "node:fs";
import { join } from "node:path";
import { createClient, createCluster } from "redis";
import { Client, Decision, JointDecision, Limit, Limiter, Options, tag, Uncertain } from "./slidegate";

interface Call {
  call: "allow" | "allowUpTo" | "peek" | "charge" | "refund" | "reset";
  n?: number;
  of?: number;
  now: number;
  key?: string;
  argv?: string[];
  reply?: number[];
  decision?: Decision;
}

interface History {
  script: string;
  name: string;
  event: string;
  secret?: string;
  countDenied?: boolean;
  limits: Limit[];
  calls: Call[];
}

interface GroupCall {
  events: string[];
  now: number;
  keys: string[];
  argv: string[];
  reply: (number | string)[];
  answers: { decision?: Decision; error?: string }[];
}

interface Group {
  script: string;
  name: string;
  secret?: string;
  countDenied?: boolean;
  limits: Limit[];
  foreign: string;
  calls: GroupCall[];
}

interface JointCall {
  checks: { limiter: number; event: string; n: number }[];
  now: number;
  keys: string[];
  argv: string[];
  reply: (number | string)[];
  joint?: JointDecision;
  error?: string;
}

interface Joint {
  limiters: { name: string; secret?: string; limits: Limit[] }[];
  foreign: string;
  calls: JointCall[];
}

interface Task {
  mode: string;
  lua: string;
  url: string;
  cluster: boolean;
  timeout: number; // in s
  name: string;
  event: string;
  secret?: string;
  limits: Limit[];
  callers: number;
}

const task: Task = JSON.parse(process.argv[2]);
const known = JSON.parse(readFileSync(join(task.lua, "testdata/vectors.json"), "utf8"));
const bytes = (hex: string) => Buffer.from(hex, "hex");
const secretOf = (given: { secret?: string }) => (given.secret ? bytes(given.secret) : undefined);

/** Returns the limiter of a history, of a group or of joint calls. */
function limiterOf(
  given: Pick<Group, "script" | "secret" | "countDenied" | "limits">, client: Client, name: string, now: () => number,
) {
  const timeout = 1000 * task.timeout;
  const options: Options = { secret: secretOf(given), countDenied: given.countDenied, now, timeout };
  return new Limiter(client, join(task.lua, given.script + ".lua"), name, given.limits, options);
}

/** Makes the calls of a history, and compares the decisions. */
async function play(h: History, client: Client, name: string, before = (_: Call) => {}, after = (_: Call) => {}) {
  let now = 0;
  const decisions: (Decision | undefined)[] = [];
  const limiter = limiterOf(h, client, name, () => now);
  for (const call of h.calls) {
    before(call);
    now = call.now;
    const argument: any = call.of === undefined ? call.n : decisions[call.of];
    const d = (await limiter[call.call](bytes(h.event), argument)) as Decision | undefined;
    decisions.push(d);
    deepStrictEqual(d, call.decision, `decision of ${JSON.stringify(call)}: ${JSON.stringify(d)}`);
    after(call);
  }
}

/** Makes the calls about several events, and compares their decisions and errors. */
async function playGroup(
  g: Group, client: Client, name: string, before = (_: GroupCall) => {}, after = (_: GroupCall) => {},
) {
  let now = 0;
  const limiter = limiterOf(g, client, name, () => now);
  for (const call of g.calls) {
    before(call);
    now = call.now;
    const answers = await limiter.allowEach(call.events.map(bytes));
    const got = answers.map((a) => (a instanceof Error ? { error: a.message.replace(name, g.name) } : { decision: a }));
    deepStrictEqual(got, call.answers, `answers of ${JSON.stringify(call)}: ${JSON.stringify(got)}`);
    after(call);
  }
}

/** Makes the joint calls, and compares decisions or errors. The names of limiters get a prefix. */
async function playJoint(
  j: Joint, client: Client, prefix: string, before = (_: JointCall) => {}, after = (_: JointCall) => {},
) {
  let now = 0;
  const limiters = j.limiters.map((l) => limiterOf({ script: "window", ...l }, client, prefix + l.name, () => now));
  for (const call of j.calls) {
    before(call);
    now = call.now;
    const checks = call.checks.map((c) => ({ limiter: limiters[c.limiter], event: bytes(c.event), n: c.n }));
    const answer = Limiter.allowAll(checks).then((joint) => ({ joint }));
    const got = await answer.catch((e: Error) => ({ error: e.message.replace(prefix, "") }));
    const want = call.error === undefined ? { joint: call.joint } : { error: call.error };
    deepStrictEqual(got, want, `answer of ${JSON.stringify(call)}: ${JSON.stringify(got)}`);
    after(call);
  }
}

/** Checks the errors of allowAll about what one call cannot decide. It sends nothing. */
async function refusals() {
  const unused: Client = { evalSha: () => { throw new Error("it was sent"); }, eval: async () => {} };
  const limiter = (script = "window.lua", options: Options = {}, client = unused) =>
    new Limiter(client, join(task.lua, script), "refused", [{ max: 1, per: 1000 }], options);
  const first = { limiter: limiter(), event: bytes("61") };
  await rejects(Limiter.allowAll([]), /no checks/);
  await rejects(Limiter.allowAll([first, first]), /two checks of allowAll have the key refused:{a}:w/);
  const elsewhere = limiter("window.lua", {}, { ...unused });
  for (const other of [limiter("ar1.lua"), limiter("window.lua", { countDenied: true }), elsewhere]) {
    const checks = [first, { limiter: other, event: bytes("62") }];
    await rejects(Limiter.allowAll(checks), /cannot decide on refused:{b}:/);
  }
}

/** Compares keys, arguments and decisions with the vectors. It needs no Redis. */
async function vectors() {
  let sent: string[] | undefined, reply: (number | string)[] | Error | undefined;
  const evalSha: Client["evalSha"] = async (_, o) => {
    sent = [...o.keys, ...o.arguments];
    if (reply instanceof Error) throw reply;
    return reply;
  };
  const recorder: Client = { evalSha, eval: evalSha };
  for (const k of known.keys) {
    deepStrictEqual(tag(bytes(k.event), secretOf(k)), k.tag);
    for (const script of ["window", "ar1"]) {
      const options = { secret: secretOf(k) };
      const limiter = new Limiter(recorder, join(task.lua, script + ".lua"), k.name, [], options);
      deepStrictEqual(limiter.key(bytes(k.event)), k[script]);
    }
  }
  for (const h of known.histories as History[]) {
    const before = (call: Call) => { sent = undefined; reply = call.reply; };
    const after = (call: Call) => deepStrictEqual(sent, call.argv && [call.key, ...call.argv], JSON.stringify(call));
    await play(h, recorder, h.name, before, after);
  }
  for (const g of known.groups as Group[]) {
    const before = (call: GroupCall) => { reply = call.reply; };
    const after = (call: GroupCall) => deepStrictEqual(sent, [...call.keys, ...call.argv], JSON.stringify(call));
    await playGroup(g, recorder, g.name, before, after);
  }
  for (const j of known.joints as Joint[]) {
    const before = (call: JointCall) => { reply = call.reply; };
    const after = (call: JointCall) => deepStrictEqual(sent, [...call.keys, ...call.argv], JSON.stringify(call));
    await playJoint(j, recorder, "", before, after);
  }
  await refusals();
  reply = new Error("lost");
  const lost = new Limiter(recorder, join(task.lua, "window.lua"), "lost", [{ max: 1, per: 1000 }]);
  const answers = await lost.allowEach([bytes("61"), bytes("62")]);
  deepStrictEqual(answers.map((a) => a instanceof Uncertain), [true, true]);
}

async function connect() {
  const client = task.cluster
    ? createCluster({ rootNodes: [{ url: task.url }], defaults: { disableOfflineQueue: true } })
    : createClient({ url: task.url, disableOfflineQueue: true });
  client.on("error", () => {}); // each call has an error of its own
  await client.connect();
  return client;
}

/** Plays the histories, groups and joint calls of the vectors on Redis, under names of its own. */
async function onRedis(client: Awaited<ReturnType<typeof connect>>) {
  for (const [i, h] of (known.histories as History[]).entries()) await play(h, client, `${task.name}-${i}`);
  for (const [i, g] of (known.groups as Group[]).entries()) {
    const name = `${task.name}-groups-${i}`;
    await client.set(limiterOf(g, client, name, () => 0).key(bytes(g.foreign)), "hello");
    await playGroup(g, client, name);
  }
  for (const j of known.joints as Joint[]) await jointOnRedis(j, client);
  const events = Array.from({ length: 130 }, (_, i) => Buffer.from(String(i))); // more than one call is about
  const limits = [{ max: 1, per: 3_600_000 }];
  const limiter = new Limiter(client, join(task.lua, "window.lua"), task.name + "-many", limits);
  for (const allowed of [true, false]) {
    const got = (await limiter.allowEach(events)).map((a) => (a instanceof Error ? a : a.allowed));
    deepStrictEqual(got, events.map(() => allowed));
  }
}

/** Plays joint calls. On a cluster, those whose keys are in several hash slots are an error. */
async function jointOnRedis(j: Joint, client: Awaited<ReturnType<typeof connect>>) {
  const [given, prefix] = [{ script: "window", ...j.limiters[0] }, task.name + "-"];
  const first = limiterOf(given, client, prefix + given.name, () => 0);
  const events = [...new Set(j.calls.flatMap((call) => call.checks.map((c) => c.event)))];
  if (task.cluster && events.length > 1) {
    const checks = events.map((event) => ({ limiter: first, event: bytes(event) }));
    await rejects(Limiter.allowAll(checks), /in several hash slots of a cluster; use the same event/);
    return;
  }
  await client.set(first.key(bytes(j.foreign)), "hello");
  await playJoint(j, client, prefix);
}

/** Reports to the test, and waits for it. */
async function ready() {
  console.log("ready");
  await once(process.stdin, "data");
}

const sleep = (ms: number) => new Promise((resolve) => setTimeout(resolve, ms));

/**
 * Returns nothing after an error that says that nothing was counted, such as MOVED while a slot
 * moves. The caller must then call again.
 */
function unlessRefused(e: unknown): undefined {
  if (e instanceof Uncertain) throw e;
}

/**
 * Runs callers that take one unit each, and prints their decisions. A caller that the last limit
 * denies gives up.
 */
async function crowd(limiter: Limiter, event: Buffer) {
  const log: [boolean, number][] = [];
  const caller = async () => {
    for (;;) {
      const d = await limiter.allow(event).catch(unlessRefused);
      if (!d) { await sleep(20); continue; }
      log.push([d.allowed, d.at]);
      if (d.allowed || d.usage[d.usage.length - 1].retryAfter > 0) return;
      await sleep(Math.min(d.retryAfter, 20));
    }
  };
  await limiter.peek(event);
  await ready();
  await Promise.all(Array.from({ length: task.callers }, caller));
  console.log(JSON.stringify(log));
}

/** Calls before and after a call whose reply is lost, and prints how many units are used. */
async function lost(limiter: Limiter, event: Buffer) {
  await limiter.allow(event);
  await ready();
  const answer = await limiter.allow(event).catch((e) => e);
  if (!(answer instanceof Uncertain)) throw new Error(`a lost reply is no Uncertain, but ${JSON.stringify(answer)}`);
  await ready();
  while (!(await limiter.peek(event).catch(() => undefined))) await sleep(20); // it connects again
  console.log((await limiter.allow(event)).usage[0].used);
}

async function main() {
  if (task.mode === "vectors") return vectors();
  const client = await connect();
  if (task.mode === "redis") {
    await onRedis(client);
  } else {
    const options: Options = { secret: secretOf(task), timeout: 1000 * task.timeout };
    const limiter = new Limiter(client, join(task.lua, "window.lua"), task.name, task.limits, options);
    await (task.mode === "crowd" ? crowd : lost)(limiter, bytes(task.event));
  }
  process.stdout.write("", () => process.exit(0)); // once a pipe has taken what was printed before
}

main().catch((e) => {
  console.error(e);
  process.exit(1);
});
