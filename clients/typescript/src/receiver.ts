/**
 * Receives callbacks of Chimes: verifies them and performs each effect once.
 *
 * Chimes calls at least once: a node can die after a call and before the record of its result. A
 * receiver checks the signature (Standard Webhooks), remembers the ids of runs, and refuses an
 * attempt that a later one has replaced (its fence is smaller).
 */

import { createHmac, timingSafeEqual } from "node:crypto";
import type { IncomingMessage, ServerResponse } from "node:http";

/** One verified call. */
export interface Call {
  /** The id of the run (of the delivery, for a notification): the same for all attempts. */
  runId: string;
  /** 1 for the first attempt; 0 for a notification. */
  attempt: number;
  /** Increases with each claim of the run; 0 for a notification. */
  fence: number;
  /** The planned time; undefined for a notification. */
  slot: Date | undefined;
  scheduleId: string | undefined;
  /** By lower-case name. */
  headers: Readonly<Record<string, string>>;
  body: Buffer;
  json(): unknown;
}

/** The HTTP response. */
export interface Answer {
  status: number;
  body: string;
  contentType: string;
  headers?: Record<string, string>;
}

/** A call whose effect must not be performed. */
export class Refused extends Error {
  override name = "Refused";

  constructor(
    readonly status: number,
    readonly code: string,
    detail: string,
    readonly retryAfter?: number,
  ) {
    super(detail);
  }

  get answer(): Answer {
    const problem = { title: "Call refused", status: this.status, code: this.code };
    return {
      status: this.status,
      body: JSON.stringify({ ...problem, detail: this.message }),
      contentType: "application/problem+json",
      headers: this.retryAfter === undefined ? {} : { "Retry-After": String(this.retryAfter) },
    };
  }
}

/** What is remembered of a run. */
export interface Receipt {
  fence: number;
  state: "begun" | "done" | "failed";
  answer?: Answer | undefined;
  /** Milliseconds since 1970. */
  at: number;
}

/** Remembers ids. Both methods are atomic among all processes that share the store. */
export interface Store {
  /** Adds a receipt if there is none, else returns the one that there is. */
  add(runId: string, receipt: Receipt): Promise<Receipt | undefined>;
  /** Replaces a receipt that `add` has returned; false if it has changed since. */
  change(runId: string, from: Receipt, to: Receipt): Promise<boolean>;
}

/** Receipts of one process, lost with it; the oldest are forgotten. */
export class MemoryStore implements Store {
  readonly #receipts = new Map<string, Receipt>();

  constructor(readonly most = 100_000) {}

  async add(runId: string, receipt: Receipt): Promise<Receipt | undefined> {
    const found = this.#receipts.get(runId);
    if (found !== undefined) return found;
    this.#receipts.set(runId, receipt);
    const oldest = this.#receipts.keys().next();
    if (this.#receipts.size > this.most && !oldest.done) this.#receipts.delete(oldest.value);
    return undefined;
  }

  async change(runId: string, from: Receipt, to: Receipt): Promise<boolean> {
    if (this.#receipts.get(runId) !== from) return false;
    this.#receipts.set(runId, to);
    return true;
  }
}

/**
 * Receipts in a PostgreSQL table. `query` is that of a `Pool` or `Client` of `pg`; the table is
 * `CREATE TABLE chimes_receipts (id TEXT PRIMARY KEY, receipt JSONB NOT NULL)`.
 */
export class PostgresStore implements Store {
  constructor(
    readonly database: {
      query(text: string, values: unknown[]): Promise<{ rows: { receipt: unknown }[] }>;
    },
    readonly table = "chimes_receipts",
  ) {
    if (!/^[A-Za-z_][A-Za-z0-9_.]*$/.test(table)) throw new TypeError(`not a table: ${table}`);
  }

  async add(runId: string, receipt: Receipt): Promise<Receipt | undefined> {
    const values = [runId, JSON.stringify(receipt)];
    const insert = `INSERT INTO ${this.table} VALUES ($1, $2) ON CONFLICT DO NOTHING RETURNING receipt`;
    if ((await this.database.query(insert, values)).rows.length > 0) return undefined;
    const select = `SELECT receipt FROM ${this.table} WHERE id = $1`;
    return (await this.database.query(select, [runId])).rows[0]?.receipt as Receipt | undefined;
  }

  async change(runId: string, from: Receipt, to: Receipt): Promise<boolean> {
    const update =
      `UPDATE ${this.table} SET receipt = $3 WHERE id = $1 AND receipt = $2::jsonb RETURNING receipt`;
    const values = [runId, JSON.stringify(from), JSON.stringify(to)];
    return (await this.database.query(update, values)).rows.length > 0;
  }
}

export interface ReceiverOptions {
  store?: Store;
  /** Accept calls without a signature, for trusted networks only. */
  unsigned?: boolean;
  /** Seconds that the clocks of sender and receiver may differ; default: 300. */
  tolerance?: number;
  /** Seconds after which an effect that has neither ended nor failed counts as lost; 900. */
  busyFor?: number;
  /** Milliseconds since 1970. */
  clock?: () => number;
}

export type Effect = (call: Call) => unknown;
type GivenHeaders = Headers | Record<string, string | string[] | undefined>;

export class Receiver {
  readonly #keys: Buffer[];
  readonly #store: Store;
  readonly #tolerance: number;
  readonly #busyFor: number;
  readonly #clock: () => number;

  /** `secrets`: signing secrets of the schedules (`whsec_…`); two while a key is rotated. */
  constructor(secrets: readonly string[], options: ReceiverOptions = {}) {
    this.#keys = secrets.map(keyOf);
    if (this.#keys.length === 0 && !options.unsigned) {
      throw new TypeError("no signing secret is given: pass whsec_… or { unsigned: true }");
    }
    this.#store = options.store ?? new MemoryStore();
    this.#tolerance = options.tolerance ?? 300;
    this.#busyFor = options.busyFor ?? 900;
    this.#clock = options.clock ?? Date.now;
  }

  /** The call, if its signature and time are right. Throws Refused. */
  verify(given: GivenHeaders, body: Buffer): Call {
    const headers = plain(given);
    const runId = headers["webhook-id"] ?? "";
    const stamp = headers["webhook-timestamp"] ?? "";
    if (runId === "" || runId.length > 200 || stamp === "") {
      const detail = "webhook-id and webhook-timestamp are missing: not Chimes?";
      throw new Refused(400, "not_a_webhook", detail);
    }
    if (this.#keys.length > 0) this.#checkSignature(headers, runId, stamp, body);
    const age = this.#clock() / 1000 - number(headers, "webhook-timestamp");
    if (Math.abs(age) > this.#tolerance) {
      const detail = `webhook-timestamp is ${age.toFixed(0)} s ago: a replay, or a wrong clock`;
      throw new Refused(401, "too_old", detail);
    }
    const slot = headers["x-chimes-slot"];
    return {
      runId,
      attempt: number(headers, "x-chimes-attempt"),
      fence: number(headers, "x-chimes-fence"),
      slot: slot === undefined ? undefined : new Date(slot),
      scheduleId: headers["x-chimes-schedule-id"],
      headers,
      body,
      json: () => JSON.parse(body.toString("utf8")) as unknown,
    };
  }

  #checkSignature(
    headers: Record<string, string>, runId: string, stamp: string, body: Buffer,
  ): void {
    const content = Buffer.concat([Buffer.from(`${runId}.${stamp}.`), body]);
    const expected = this.#keys.map((key) => createHmac("sha256", key).update(content).digest());
    // Several signatures are separated by spaces while the sender rotates its key.
    for (const each of (headers["webhook-signature"] ?? "").split(" ")) {
      const [version, signature = ""] = each.split(",", 2);
      const sent = Buffer.from(signature, "base64");
      if (version !== "v1") continue;
      if (expected.some((own) => own.length === sent.length && timingSafeEqual(own, sent))) return;
    }
    const detail = "webhook-signature fits no secret of this receiver";
    throw new Refused(401, "bad_signature", detail);
  }

  /** Performs the effect, once, and returns the response. Rethrows an error of the effect. */
  async receive(headers: GivenHeaders, body: Buffer, effect: Effect): Promise<Answer> {
    let call: Call;
    const began = this.#clock();
    try {
      call = this.verify(headers, body);
      const known = await this.#begin(call, began);
      if (known !== undefined) return known;
    } catch (error) {
      if (error instanceof Refused) return error.answer;
      throw error;
    }
    try {
      const answer = answerOf(await effect(call));
      await this.#record(call, began, "done", answer);
      return answer;
    } catch (error) {
      await this.#record(call, began, "failed");
      if (error instanceof Refused) return error.answer;
      throw error;
    }
  }

  async #begin(call: Call, now: number): Promise<Answer | undefined> {
    const begun: Receipt = { fence: call.fence, state: "begun", at: now };
    for (;;) {
      const found = await this.#store.add(call.runId, begun);
      if (found === undefined) return undefined;
      if (call.fence < found.fence) {
        const detail =
          `attempt ${call.attempt} has fence ${call.fence}, but fence ${found.fence} was seen: ` +
          "another node has taken the run over";
        throw new Refused(409, "stale_fence", detail);
      }
      const busy = found.state === "begun" && now - found.at < this.#busyFor * 1000;
      const next = busy || found.state === "done" ? { ...found, fence: call.fence } : begun;
      if (!(await this.#store.change(call.runId, found, next))) continue; // decide again
      if (found.state === "done") return found.answer;
      if (!busy) return undefined;
      const detail = "an earlier attempt of this run is being performed; repeat the call later";
      throw new Refused(503, "in_progress", detail, 5);
    }
  }

  /** Remembers how the attempt that began at that time has ended. */
  async #record(
    call: Call, began: number, state: "done" | "failed", answer?: Answer,
  ): Promise<void> {
    const receipt: Receipt = { fence: call.fence, state, answer, at: this.#clock() };
    for (;;) {
      const found = await this.#store.add(call.runId, receipt);
      // A later attempt has performed it, or the answer of the database was lost.
      if (found === undefined || found.state === "done") return;
      // A later attempt is performing it. The fence does not tell: it also increases when a later
      // attempt is refused because of this one.
      if (state === "failed" && found.state === "begun" && found.at !== began) return;
      const fence = Math.max(call.fence, found.fence);
      if (await this.#store.change(call.runId, found, { ...receipt, fence })) return;
    }
  }

  /**
   * A handler of Express, or of `node:http`: `app.post("/report", receiver.handler(report))`. It
   * reads the raw body itself, so no body parser may come before it.
   */
  handler(effect: Effect): (
    request: IncomingMessage, response: ServerResponse, next?: (error: unknown) => void,
  ) => Promise<void> {
    return async (request, response, next) => {
      try {
        const chunks: Buffer[] = [];
        for await (const chunk of request) chunks.push(chunk as Buffer);
        const body = Buffer.concat(chunks);
        send(response, await this.receive(request.headers, body, effect));
      } catch (error) {
        if (next !== undefined) return next(error);
        const problem = JSON.stringify({ title: "Internal error", status: 500 });
        send(response, { status: 500, body: problem, contentType: "application/problem+json" });
      }
    };
  }
}

function send(response: ServerResponse, answer: Answer): void {
  response.writeHead(answer.status, { "Content-Type": answer.contentType, ...answer.headers });
  response.end(answer.body);
}

function answerOf(result: unknown): Answer {
  if (result === undefined || result === null) {
    return { status: 204, body: "", contentType: "application/json" };
  }
  if (typeof result === "string") {
    return { status: 200, body: result, contentType: "text/plain; charset=utf-8" };
  }
  return { status: 200, body: JSON.stringify(result), contentType: "application/json" };
}

function keyOf(secret: string): Buffer {
  const encoded = secret.replace(/^whsec_/, "");
  if (encoded === secret || !/^[A-Za-z0-9+/]+=*$/.test(encoded)) {
    throw new TypeError("a signing secret is whsec_ and base64, as Chimes shows it");
  }
  return Buffer.from(encoded, "base64");
}

function plain(given: GivenHeaders): Record<string, string> {
  const entries = given instanceof Headers ? [...given.entries()] : Object.entries(given);
  const found: Record<string, string> = {};
  for (const [name, value] of entries) {
    if (value !== undefined) found[name.toLowerCase()] = String(value);
  }
  return found;
}

function number(headers: Record<string, string>, name: string): number {
  const text = headers[name] ?? "0";
  if (!/^[0-9]{1,15}$/.test(text)) throw new Refused(400, "bad_header", `${name} is not a number`);
  return Number(text);
}
