/**
 * Rate limiters that share their counts with those of Slidegate in Go, on node-redis 4.5 or later.
 *
 * Copy this file, and window.lua or ar1.lua of the same version of Slidegate. docs/languages.md has
 * an example.
 */
import { createHash, createHmac } from "node:crypto";
import { readFileSync } from "node:fs";
import { basename } from "node:path";
import { ClientOfflineError, ErrorReply } from "redis";

/**
 * At most max units in any span of per. All times are in ms. A resolution is for window alone, and
 * replaces the default.
 */
export interface Limit { max: number; per: number; resolution?: number }

/**
 * What one limit has in use. retryAfter is the ms until it admits the same request. resetAfter is
 * the ms until it is as if never used.
 */
export interface Usage { used: number; remaining: number; retryAfter: number; resetAfter: number }

/** The answer to an attempt. If it grants less than was asked for, retry after retryAfter ms. */
export interface Decision {
  allowed: boolean;
  granted: number;
  counted: number;
  remaining: number;
  retryAfter: number;
  at: number; // when: in ms since 1970 for window, in us for ar1
  usage: Usage[];
}

/**
 * What createClient and createCluster of node-redis return. Set disableOfflineQueue, so that no
 * call is sent late.
 */
export interface Client {
  evalSha(sha: string, o: { keys: string[]; arguments: string[] }): Promise<unknown>;
  eval(source: string, o: { keys: string[]; arguments: string[] }): Promise<unknown>;
}

export interface Options {
  secret?: Buffer; // at least 16 random bytes: keys then hold an HMAC-SHA256 of the event
  countDenied?: boolean; // denied attempts count, too
  timeout?: number; // the longest wait for a reply, in ms; 1000 without it
  now?: () => number; // for tests alone, in the unit of Decision.at
}

/** No reply came, so the call may or may not have been counted. Do not repeat it. */
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
 * Limits events by a script, under a name that all callers share. An ErrorReply means that nothing
 * was counted.
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
    return `${this.name}:{${tag(event, this.options.secret)}}:${this.kind}`;
  }

  /** Counts n units, or none if a limit denies them. */
  allow(event: Buffer, n = 1): Promise<Decision> {
    return this.decide(this.options.countDenied ? "count" : "allow", event, n);
  }

  /** Counts as many of n units as every limit admits. */
  allowUpTo(event: Buffer, n: number): Promise<Decision> {
    return this.decide(this.options.countDenied ? "countsome" : "some", event, n);
  }

  /** Returns what allow would answer, and counts nothing. */
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
    if (d.counted > 0) await this.call("refund", event, d.counted, !!this.options.countDenied, d.at);
  }

  /** Forgets the event. */
  async reset(event: Buffer): Promise<void> {
    await this.call("reset", event, 1, !!this.options.countDenied);
  }

  private async decide(verb: string, event: Buffer, n: number, coarse = !!this.options.countDenied): Promise<Decision> {
    const [first, at, ...rest] = await this.call(verb, event, n, coarse);
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

  private async call(verb: string, event: Buffer, n: number, coarse: boolean, ...last: number[]): Promise<number[]> {
    if (event.length === 0) throw new Error("the event is empty; name its subject");
    const limits = this.limits.flatMap((l) => (this.kind === "w" ? [l.per, l.max, width(l, coarse)] : [l.per, l.max]));
    const now = this.options.now ? this.options.now() : "";
    const call = { keys: [this.key(event)], arguments: [verb, now, n, ...limits, ...last].map(String) };
    try {
      return await this.inTime(this.client.evalSha(this.sha, call));
    } catch (e) {
      if (!(e instanceof ErrorReply && e.message.startsWith("NOSCRIPT"))) throw e;
      return this.inTime(this.client.eval(this.source, call)); // it certainly did not run
    }
  }

  /** Waits for a reply. Without one, the call is Uncertain, unless it was certainly not sent. */
  private async inTime(reply: Promise<unknown>): Promise<number[]> {
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      timer = setTimeout(() => reject(new Error("it came too late")), this.options.timeout ?? 1000);
    });
    try {
      return (await Promise.race([reply, late])) as number[];
    } catch (e) {
      if (e instanceof ErrorReply || e instanceof ClientOfflineError) throw e;
      throw new Uncertain(`no reply, so this may or may not have been counted; do not repeat it: ${e}`);
    } finally {
      clearTimeout(timer);
    }
  }
}
