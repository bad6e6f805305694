/** Client of the Chimes API. The types are generated from its OpenAPI document. */

import type { components, operations } from "./schema.js";

export type { components, operations, paths } from "./schema.js";

type Schemas = components["schemas"];
export type Schedule = Schemas["Schedule"];
export type ScheduleIn = Schemas["ScheduleIn"];
export type SchedulePatch = Schemas["SchedulePatch"];
export type Run = Schemas["Run"];
export type RunIn = Schemas["RunIn"];
export type StartIn = Schemas["StartIn"];
export type LogLine = Schemas["Log"];
export type Problem = Schemas["Problem"];
export type Trigger = Schemas["Trigger"];
export type Target = Schemas["Target"];
export type Preview = Schemas["Preview"];
export type ScheduleFilter = NonNullable<operations["list_schedules"]["parameters"]["query"]>;
export type RunFilter = NonNullable<operations["list_runs"]["parameters"]["query"]>;

/** An error response of the server (RFC 9457). */
export class ChimesError extends Error {
  override name = "ChimesError";

  constructor(
    readonly status: number,
    readonly problem: Partial<Problem>,
    readonly retryAfter: number | undefined,
  ) {
    super(problem.detail ?? problem.title ?? `HTTP ${status}`);
  }

  /** Stable code of the problem, for example `not_found`. */
  get code(): string {
    return this.problem.code ?? `http_${this.status}`;
  }

  /** The fields that are wrong. */
  get errors(): Problem["errors"] {
    return this.problem.errors;
  }
}

/** The run has not ended within the time that was waited. */
export class NotEnded extends Error {
  override name = "NotEnded";
}

export interface ClientOptions {
  /** Address of the server; default: `http://127.0.0.1:7100`. */
  url?: string;
  /** Key of the API, `chm_…`. */
  key?: string;
  /** Attempts of a request that is safe to repeat; default: 4. */
  attempts?: number;
  /** Milliseconds until a request is given up; default: 30,000. */
  timeout?: number;
  /** Further headers, for example `Accept-Language`. */
  headers?: Record<string, string>;
  /** Default: the `fetch` of the platform. */
  fetch?: typeof fetch;
}

export interface RequestOptions {
  /** Repeats of a request with the same key have no further effect; default: a new key per call. */
  idempotencyKey?: string;
  /** Change only this version: the `ETag` or the `version` of the schedule. */
  ifMatch?: string | number;
  signal?: AbortSignal;
}

interface Sending extends RequestOptions {
  query?: object | undefined;
  body?: unknown;
}

type Page<Item> = { items: Item[]; next_cursor: string | null };

const FINAL: ReadonlySet<string> = new Set([
  "succeeded", "failed", "timeout", "canceled", "skipped", "missed", "unknown",
]);
const REPEATABLE: ReadonlySet<number> = new Set([429, 502, 503, 504]);

export class ChimesClient {
  readonly #url: string;
  readonly #headers: Record<string, string>;
  readonly #attempts: number;
  readonly #timeout: number;
  readonly #fetch: typeof fetch;

  constructor(options: ClientOptions = {}) {
    this.#url = (options.url ?? "http://127.0.0.1:7100").replace(/\/+$/, "");
    this.#headers = { Accept: "application/json", ...options.headers };
    if (options.key) this.#headers["Authorization"] = `Bearer ${options.key}`;
    this.#attempts = options.attempts ?? 4;
    this.#timeout = options.timeout ?? 30_000;
    this.#fetch = options.fetch ?? fetch;
  }

  // Schedules

  createSchedule(schedule: ScheduleIn, options?: RequestOptions): Promise<Schedule> {
    return this.request("POST", "/api/v1/schedules", { ...options, body: schedule });
  }

  getSchedule(id: string): Promise<Schedule> {
    return this.request("GET", `/api/v1/schedules/${encodeURIComponent(id)}`);
  }

  /** All schedules that match, page by page: `for await (const each of client.listSchedules())`. */
  listSchedules(filter?: ScheduleFilter): AsyncIterableIterator<Schedule> {
    return this.pages<Schedule>("/api/v1/schedules", filter);
  }

  /** Changes the given fields; with `ifMatch` a concurrent change is a ChimesError of status 412. */
  changeSchedule(id: string, patch: SchedulePatch, options?: RequestOptions): Promise<Schedule> {
    const path = `/api/v1/schedules/${encodeURIComponent(id)}`;
    return this.request("PATCH", path, { ...options, body: patch });
  }

  async deleteSchedule(id: string, options?: RequestOptions): Promise<void> {
    await this.request("DELETE", `/api/v1/schedules/${encodeURIComponent(id)}`, options);
  }

  pauseSchedule(id: string, note = "", options?: RequestOptions): Promise<Schedule> {
    const path = `/api/v1/schedules/${encodeURIComponent(id)}/pause`;
    return this.request("POST", path, { ...options, body: { note } });
  }

  resumeSchedule(id: string, options?: RequestOptions): Promise<Schedule> {
    const path = `/api/v1/schedules/${encodeURIComponent(id)}/resume`;
    return this.request("POST", path, options);
  }

  /** The next fires of a trigger; saves nothing. */
  preview(trigger: Trigger, count = 5): Promise<Preview> {
    return this.request("POST", "/api/v1/preview", { body: { trigger, count } });
  }

  // Runs

  /** Runs a schedule once, now. */
  runSchedule(id: string, body: RunIn = {}, options?: RequestOptions): Promise<Run> {
    const path = `/api/v1/schedules/${encodeURIComponent(id)}/run`;
    return this.request("POST", path, { ...options, body });
  }

  /** Starts a run without a schedule. */
  startRun(body: StartIn, options?: RequestOptions): Promise<Run> {
    return this.request("POST", "/api/v1/runs", { ...options, body });
  }

  getRun(id: string): Promise<Run> {
    return this.request("GET", `/api/v1/runs/${encodeURIComponent(id)}`);
  }

  listRuns(filter?: RunFilter): AsyncIterableIterator<Run> {
    return this.pages<Run>("/api/v1/runs", filter);
  }

  cancelRun(id: string, options?: RequestOptions): Promise<Run> {
    return this.request("POST", `/api/v1/runs/${encodeURIComponent(id)}/cancel`, options);
  }

  /** Waits until the run has ended. Throws NotEnded after `timeout` milliseconds. */
  async waitForRun(id: string, { timeout = 60_000, interval = 250 } = {}): Promise<Run> {
    const end = Date.now() + timeout;
    for (;;) {
      const run = await this.getRun(id);
      if (FINAL.has(run.status)) return run;
      if (Date.now() >= end) throw new NotEnded(`run ${id} is ${run.status} after ${timeout} ms`);
      await pause(interval);
    }
  }

  /** The log of a run, oldest line first. */
  async *logs(id: string, after = 0): AsyncIterableIterator<LogLine> {
    const path = `/api/v1/runs/${encodeURIComponent(id)}/logs`;
    for (let next: number | null = after; next !== null; ) {
      const page: Schemas["LogPage"] = await this.request("GET", path, { query: { after: next } });
      yield* page.items;
      next = page.next_after;
    }
  }

  // Any operation

  /** The items of all pages of a list. */
  async *pages<Item>(path: string, filter?: object): AsyncIterableIterator<Item> {
    let cursor: string | null = null;
    do {
      const query: object = cursor === null ? { ...filter } : { ...filter, cursor };
      const page: Page<Item> = await this.request("GET", path, { query });
      yield* page.items;
      cursor = page.next_cursor;
    } while (cursor !== null);
  }

  /**
   * Sends a request and returns the decoded body. A POST has an Idempotency-Key, so that it is
   * repeated safely after a lost connection, as GET is.
   */
  async request<Body>(method: string, path: string, sending: Sending = {}): Promise<Body> {
    const url = new URL(this.#url + path);
    for (const [name, value] of Object.entries(sending.query ?? {})) {
      for (const each of Array.isArray(value) ? value : [value]) {
        if (each !== undefined && each !== null) url.searchParams.append(name, String(each));
      }
    }
    const headers: Record<string, string> = { ...this.#headers };
    if (sending.body !== undefined) headers["Content-Type"] = "application/json";
    if (method === "POST") {
      headers["Idempotency-Key"] = sending.idempotencyKey ?? crypto.randomUUID();
    }
    if (sending.ifMatch !== undefined) headers["If-Match"] = String(sending.ifMatch);
    const repeatable = method === "GET" || method === "POST";
    for (let attempt = 1; ; attempt++) {
      const last = !repeatable || attempt >= this.#attempts;
      const signal = AbortSignal.timeout(this.#timeout);
      let failure: unknown;
      try {
        const response = await this.#fetch(url, {
          method,
          headers,
          body: sending.body === undefined ? null : JSON.stringify(sending.body),
          signal: sending.signal ? AbortSignal.any([signal, sending.signal]) : signal,
        });
        if (response.ok) {
          return (response.status === 204 ? undefined : await response.json()) as Body;
        }
        failure = await errorOf(response);
      } catch (error) {
        failure = error;
      }
      if (last || sending.signal?.aborted || !mayRepeat(failure)) throw failure;
      const asked = failure instanceof ChimesError ? failure.retryAfter : undefined;
      await pause(Math.min(asked ?? 100 * 2 ** attempt, 30_000));
    }
  }
}

async function errorOf(response: Response): Promise<ChimesError> {
  const text = await response.text();
  let problem: Partial<Problem>;
  try {
    problem = JSON.parse(text) as Partial<Problem>;
  } catch {
    problem = { detail: text.slice(0, 200) || response.statusText };
  }
  const seconds = Number(response.headers.get("Retry-After") ?? NaN);
  return new ChimesError(response.status, problem, isNaN(seconds) ? undefined : seconds * 1000);
}

/** Errors of the connection, limits and outages; 409 while the first request is being answered. */
function mayRepeat(failure: unknown): boolean {
  if (!(failure instanceof ChimesError)) return true;
  return REPEATABLE.has(failure.status) || failure.code === "request_under_way";
}

function pause(milliseconds: number): Promise<void> {
  return new Promise((resolve) => setTimeout(resolve, milliseconds));
}
