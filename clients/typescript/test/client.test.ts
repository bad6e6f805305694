/** Against a real server, whose address is in CHIMES_URL; CHIMES_HOOK is an address that it calls. */

import assert from "node:assert/strict";
import { createServer } from "node:http";
import { test } from "node:test";

import { ChimesClient, ChimesError, NotEnded, type ScheduleIn, type Trigger } from "../src/index.js";

const url = process.env["CHIMES_URL"];
assert(url, "CHIMES_URL is not set: start a server, or run tests/clients of the repository");
const hook = process.env["CHIMES_HOOK"] ?? "http://127.0.0.1:9/";
const client = new ChimesClient({ url });

function schedule(name: string): ScheduleIn {
  return {
    name,
    trigger: { kind: "cron", expression: "0 9 1 1 *", timezone: "Asia/Bangkok" },
    target: { kind: "http", url: hook, body: '{"n":1}' },
    labels: { suite: "typescript" },
  };
}

test("create, list, run, read logs", async () => {
  const made = await client.createSchedule(schedule("round trip"));
  assert.equal(made.words.length > 0, true);
  assert.equal(made.target.kind === "http" && made.target.url, hook);
  const run = await client.runSchedule(made.id);
  const ended = await client.waitForRun(run.id);
  assert.equal(ended.status, "succeeded");
  const messages: string[] = [];
  for await (const each of client.logs(run.id)) messages.push(each.message);
  assert.match(messages.join("\n"), /POST http/);
  const runs: string[] = [];
  for await (const each of client.listRuns({ schedule_id: made.id })) runs.push(each.id);
  assert.deepEqual(runs, [run.id]);
  await client.deleteSchedule(made.id);
  await assert.rejects(client.getSchedule(made.id), { status: 404, code: "not_found" });
});

test("lists all pages", async () => {
  const names = [...Array(5).keys()].map((each) => `page ${each}`);
  for (const name of names) await client.createSchedule(schedule(name));
  const found: string[] = [];
  for await (const each of client.listSchedules({ q: "page ", limit: 2 })) found.push(each.name);
  assert.deepEqual(found.sort(), names);
});

test("a repeated request with the same key has one effect", async () => {
  const idempotencyKey = crypto.randomUUID();
  const first = await client.createSchedule(schedule("once"), { idempotencyKey });
  const again = await client.createSchedule(schedule("once"), { idempotencyKey });
  assert.equal(again.id, first.id);
});

test("a lost answer is asked for again", async () => {
  let calls = 0;
  const losing: typeof fetch = async (input, init) => {
    const response = await fetch(input, init);
    if (calls++ === 0) throw new TypeError("fetch failed");
    return response;
  };
  const lossy = new ChimesClient({ url, fetch: losing });
  const made = await lossy.createSchedule(schedule("lost answer"));
  const found = [];
  for await (const each of client.listSchedules({ name: "lost answer" })) found.push(each.id);
  assert.deepEqual([calls, found], [2, [made.id]]);
});

test("errors are problem details", async () => {
  const wrong = { ...schedule("wrong"), trigger: { kind: "cron", expression: "61 * * * *" } };
  const error = await client.createSchedule(wrong as ScheduleIn).catch((each: unknown) => each);
  assert(error instanceof ChimesError);
  assert.equal(error.status, 422);
  assert.equal(error.errors?.[0]?.pointer, "/trigger/expression");
  const made = await client.createSchedule(schedule("changed"));
  await client.changeSchedule(made.id, { enabled: false }, { ifMatch: made.version });
  await assert.rejects(
    client.changeSchedule(made.id, { enabled: true }, { ifMatch: made.version }),
    { status: 412 },
  );
});

test("Retry-After of an overloaded server is obeyed", async () => {
  let calls = 0;
  const server = createServer((_request, response) => {
    const busy = ++calls === 1;
    const headers = { "Content-Type": "application/json", "Retry-After": "0" };
    response.writeHead(busy ? 503 : 200, headers).end("{}");
  }).listen(0, "127.0.0.1");
  await new Promise((resolve) => server.once("listening", resolve));
  const address = server.address();
  assert(address !== null && typeof address === "object");
  await new ChimesClient({ url: `http://127.0.0.1:${address.port}` }).getRun("r1");
  server.close();
  assert.equal(calls, 2);
});

test("waiting for a run ends", async () => {
  const run = await client.startRun({
    target: { kind: "http", url: hook },
    at: new Date(Date.now() + 3_600_000).toISOString(),
  });
  await assert.rejects(client.waitForRun(run.id, { timeout: 10, interval: 5 }), NotEnded);
  assert.equal((await client.cancelRun(run.id)).status, "canceled");
});

test("types reject what the server would reject", () => {
  // @ts-expect-error: a trigger of this kind needs an expression
  const trigger: Trigger = { kind: "cron" };
  // @ts-expect-error: there is no such field
  const misspelt: ScheduleIn = { ...schedule("x"), enable: true };
  // @ts-expect-error: a task has a name, not a url
  const target: ScheduleIn["target"] = { kind: "task", url: hook };
  assert(trigger && misspelt && target);
});
