/**
 * Rate limiters that share their counts with those of Slidegate in Go, with node-redis 4.5 or later.
 *
 * Copy this file, and window.lua or ar1.lua of the same version of Slidegate. docs/languages.md has
 * an example.
 */
import { createHash, createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { ClientOfflineError, ErrorReply } from "redis";

/**
 * At most max units in any span of per. All times are in ms. A resolution applies only to window,
 * and replaces the default.
 */
export interface Limit { max: number; per: number; resolution?: number }

/**
 * The usage of one limit. retryAfter is the number of ms until it allows the same request.
 * resetAfter is the number of ms until nothing is in use.
 */
export interface Usage { used: number; remaining: number; retryAfter: number; resetAfter: number }

/** The decision on an attempt. If it grants less than was requested, retry after retryAfter ms. */
export interface Decision {
  allowed: boolean;
  granted: number;
  counted: number;
  remaining: number;
  retryAfter: number;
  at: number; // the time: in ms since 1970 for window, in us for ar1
  usage: Usage[];
}

/** One of the attempts in allowAll: n units of an event under a limiter. n defaults to 1. */
export interface Check { limiter: Limiter; event: Buffer; n?: number }

/**
 * The result of allowAll, with a decision on each check, in order. If it is not allowed, nothing
 * was counted. retryAfter is then the longest wait of the checks that deny.
 */
export interface JointDecision { allowed: boolean; retryAfter: number; decisions: Decision[] }

/**
 * A client from createClient or createCluster of node-redis. Set disableOfflineQueue, so that no
 * call is sent late.
 */
export interface Client {
  evalSha(sha: string, o: { keys: string[]; arguments: string[] }): Promise<unknown>;
  eval(source: string, o: { keys: string[]; arguments: string[] }): Promise<unknown>;
  getMasters?: unknown; // only a cluster has it
}

export interface Options {
  secret?: Buffer; // at least 16 random bytes: keys then contain an HMAC-SHA256 of the event
  countDenied?: boolean; // denied attempts count too
  timeout?: number; // the longest wait for a reply, in ms; the default is 1000
  now?: () => number; // for tests only, in the unit of Decision.at
}

/** A reply of the script. An event that fails among others has a string instead of its first number. */
type Reply = (number | string)[];

/** There was no reply, so the call may or may not have been counted. Do not repeat it. */
export class Uncertain extends Error {}

/** Returns the hash tag of an event. */
export function tag(event: Buffer, secret?: Buffer): string {
  if (secret) return "~" + createHmac("sha256", secret).update(event).digest("base64url");
  if (event.length > 128) return "~" + createHash("sha256").update(event).digest("base64url");
  return Array.from(event, (c, i) => {
    const char = String.fromCharCode(c);
    const plain = c > 0x20 && c < 0x7f && !"{}%".includes(char) && (i > 0 || char !== "~");
    return plain ? char : "%" + c.toString(16).toUpperCase().padStart(2, "0");
  }).join("");
}

/** Returns the width of a bucket. Coarse is for units that max does not bound. */
function width(limit: Limit, coarse: boolean): number {
  const width = limit.resolution || (limit.max <= 60 && !coarse ? 1 : Math.ceil(limit.per / 60));
  return coarse ? Math.max(width, Math.ceil(limit.per / 255)) : width;
}

/**
 * Limits events with a script, under a name that all callers share. An ErrorReply means that
 * nothing was counted.
 */
export class Limiter {
  private readonly source: string;
  private readonly sha: string;
  private readonly kind: string;

  constructor(
    private client: Client,
    script: string,
    private name: string,
    private limits: Limit[],
    private options: Options = {},
  ) {
    if (!/^[A-Za-z0-9._:-]{1,64}$/.test(name)) {
      throw new Error(`the name ${name} does not have 1 to 64 bytes of A-Z a-z 0-9 . _ - :`);
    }
    if (options.secret && options.secret.length < 16) throw new Error("a secret has at least 16 random bytes");
    this.source = readFileSync(script, "utf8");
    this.sha = createHash("sha1").update(this.source).digest("hex");
    this.kind = basename(script) === "window.lua" ? "w" : "a";
  }

  /** Returns the Redis key of an event. */
  key(event: Buffer): string {
    if (event.length === 0) throw new Error("the event is empty; name its subject");
    return `${this.name}:{${tag(event, this.options.secret)}}:${this.kind}`;
  }

  /** Counts n units, or none if a limit denies them. */
  allow(event: Buffer, n = 1): Promise<Decision> {
    return this.decide(this.options.countDenied ? "count" : "allow", event, n);
  }

  /**
   * Counts one unit of each event, or none if a limit denies it, sequentially. Returns the decision
   * on each event, or its error. One call to a server covers up to 64 events. On a cluster, each
   * event has its own call.
   */
  async allowEach(events: Buffer[]): Promise<(Decision | Error)[]> {
    const keys = events.map((event) => this.key(event));
    const size = this.client.getMasters ? 1 : 64;
    const answers: (Decision | Error)[] = [];
    for (let i = 0; i < keys.length; i += size) answers.push(...(await this.allowKeys(keys.slice(i, i + size))));
    return answers;
  }

  /**
   * Counts the units of all checks in one call, or none if one of them is denied. If one is
   * denied, the decisions on the others still say that they would be allowed, with counted 0. All
   * keys must differ. On a cluster, they must be in one hash slot: use the same event and the same
   * secret for all. The limiters must share a client, use window.lua, and not count denied attempts.
   */
  static async allowAll(checks: Check[]): Promise<JointDecision> {
    const keys = Limiter.jointKeys(checks);
    const limits = checks.flatMap(({ limiter }) => [limiter.limits.length, ...limiter.limitArguments(false)]);
    const units = checks.map(({ n = 1 }) => n);
    const reply = await checks[0].limiter.run("joint", keys, units, [keys.length, ...limits]);
    let at = 0;
    const decisions = checks.map(({ limiter, n = 1 }) => {
      const part = reply.slice(at, (at += 2 + 3 * limiter.limits.length));
      if (typeof part[0] === "string") throw new ErrorReply(part[0]);
      return limiter.decision("allow", n, part as number[]);
    });
    const allowed = decisions.every((d) => d.allowed);
    const retryAfter = Math.max(...decisions.map((d) => d.retryAfter));
    return { allowed, retryAfter, decisions: allowed ? decisions : decisions.map((d) => ({ ...d, counted: 0 })) };
  }

  /** Counts as many of n units as every limit allows. */
  allowUpTo(event: Buffer, n: number): Promise<Decision> {
    return this.decide(this.options.countDenied ? "countsome" : "some", event, n);
  }

  /** Returns what allow would return, and counts nothing. */
  peek(event: Buffer, n = 1): Promise<Decision> {
    return this.decide("peek", event, n);
  }

  /** Counts n units that were already used, even if a limit denies them. */
  async charge(event: Buffer, n: number): Promise<Decision> {
    const d = await this.decide("countsome", event, n, true);
    return { ...d, allowed: d.granted === n };
  }

  /** Gives back what a decision counted. Call it once for each decision. */
  async refund(event: Buffer, d: Decision): Promise<void> {
    if (d.counted > 0) await this.call("refund", [this.key(event)], d.counted, !!this.options.countDenied, d.at);
  }

  /** Forgets the event. */
  async reset(event: Buffer): Promise<void> {
    await this.call("reset", [this.key(event)], 1, !!this.options.countDenied);
  }

  private async allowKeys(keys: string[]): Promise<(Decision | Error)[]> {
    const verb = this.options.countDenied ? "count" : "allow";
    try {
      const reply = await this.call(verb, keys, 1, !!this.options.countDenied);
      const size = reply.length / keys.length;
      return keys.map((_, i) => {
        const part = reply.slice(i * size, (i + 1) * size);
        return typeof part[0] === "string" ? new ErrorReply(part[0]) : this.decision(verb, 1, part as number[]);
      });
    } catch (e) {
      return keys.map(() => e as Error);
    }
  }

  private async decide(verb: string, event: Buffer, n: number, coarse = !!this.options.countDenied): Promise<Decision> {
    return this.decision(verb, n, (await this.call(verb, [this.key(event)], n, coarse)) as number[]);
  }

  private decision(verb: string, n: number, [first, at, ...rest]: number[]): Decision {
    const usage = this.limits.map((limit, i) => {
      const [used, retryAfter, resetAfter] = rest.slice(3 * i);
      return { used, remaining: Math.max(0, limit.max - used), retryAfter, resetAfter };
    });
    const granted = verb.endsWith("some") ? first : first * n;
    const counted = verb === "peek" ? 0 : verb.startsWith("count") ? n : granted;
    const remaining = Math.min(...usage.map((u) => u.remaining));
    const retryAfter = granted < n ? Math.max(...usage.map((u) => u.retryAfter)) : 0;
    return { allowed: granted > 0, granted, counted, remaining, retryAfter, at, usage };
  }

  /** Returns the keys of checks, or throws an error if one call cannot decide on them. */
  private static jointKeys(checks: Check[]): string[] {
    if (checks.length === 0) throw new Error("allowAll has no checks; give it at least one");
    const keys: string[] = [];
    for (const { limiter, event } of checks) {
      const key = limiter.key(event);
      if (keys.includes(key)) throw new Error(`two checks of allowAll have the key ${key}; add up their units in one`);
      if (limiter.kind !== "w" || limiter.options.countDenied || limiter.client !== checks[0].limiter.client) {
        throw new Error(`allowAll cannot decide on ${key}: the limiters must share a client, use window.lua, ` +
          "and not count denied attempts");
      }
      keys.push(key);
    }
    return keys;
  }

  /** Calls the script for the events of some keys, with n units each. */
  private call(verb: string, keys: string[], n: number, coarse: boolean, ...last: number[]): Promise<Reply> {
    return this.run(verb, keys, keys.map(() => n), [...this.limitArguments(coarse), ...last]);
  }

  /** Returns the limits as arguments of the script. */
  private limitArguments(coarse: boolean): number[] {
    return this.limits.flatMap((l) => (this.kind === "w" ? [l.per, l.max, width(l, coarse)] : [l.per, l.max]));
  }

  /** Calls the script for units of the events of some keys. */
  private async run(verb: string, keys: string[], units: number[], rest: number[]): Promise<Reply> {
    const now = this.options.now ? this.options.now() : "";
    const call = { keys, arguments: [verb, now, ...units, ...rest].map(String) };
    try {
      return await this.inTime(this.client.evalSha(this.sha, call));
    } catch (e) {
      if (!(e instanceof ErrorReply)) throw e;
      if (e.message.startsWith("CROSSSLOT")) {
        throw new ErrorReply(`nothing was counted, because the keys ${keys.join(", ")} are in several hash slots of a ` +
          "cluster; use the same event and the same secret for all, or one call for each");
      }
      if (!e.message.startsWith("NOSCRIPT")) throw e;
      return this.inTime(this.client.eval(this.source, call)); // the call certainly did not run
    }
  }

  /** Waits for a reply. Without one, it throws Uncertain, unless the call was certainly not sent. */
  private async inTime(reply: Promise<unknown>): Promise<Reply> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error("it came too late")), this.options.timeout ?? 1000);
    });
    try {
      return (await Promise.race([reply, late])) as Reply;
    } catch (e) {
      if (e instanceof ErrorReply || e instanceof ClientOfflineError) throw e;
      throw new Uncertain(`no reply, so this may or may not have been counted; do not repeat it: ${e}`);
    } finally {
      clearTimeout(timer);
    }
  }
}
