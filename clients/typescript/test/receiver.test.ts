import assert from "node:assert/strict";
import { createHmac } from "node:crypto";
import { test } from "node:test";

import pg from "pg";

import {
  MemoryStore, PostgresStore, Receiver, Refused, type Call, type Store,
} from "../src/receiver.js";

const SECRET = `whsec_${Buffer.alloc(32, "k").toString("base64")}`;
const OTHER = `whsec_${Buffer.alloc(32, "o").toString("base64")}`;
const NOW = 1_900_000_000;

function signature(secret: string, id: string, at: number, body: string): string {
  const key = Buffer.from(secret.slice(6), "base64");
  return `v1,${createHmac("sha256", key).update(`${id}.${at}.${body}`).digest("base64")}`;
}

function headers(id = "r1", fence = 1, { at = NOW, secrets = [SECRET] } = {}) {
  return {
    "Webhook-Id": id,
    "webhook-timestamp": String(at),
    "webhook-signature": secrets.map((each) => signature(each, id, at, "{}")).join(" "),
    "x-chimes-attempt": String(fence),
    "x-chimes-fence": String(fence),
    "x-chimes-slot": "2030-02-11T02:00:00Z",
  };
}

const BODY = Buffer.from("{}");
const clock = () => NOW * 1000;
const code = (answer: { body: string }) => (JSON.parse(answer.body) as { code?: string }).code;

test("only signed recent calls are accepted", async () => {
  // From the documentation of Standard Webhooks.
  const vector = new Receiver(["whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"], {
    clock: () => 1614265330_000,
  });
  const body = Buffer.from('{"test": 2432232314}');
  const signed = {
    "webhook-id": "msg_p5jXN8AQM9LWM0D4loKWxJek",
    "webhook-timestamp": "1614265330",
    "webhook-signature": "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
  };
  assert.equal(vector.verify(signed, body).fence, 0);
  assert.throws(() => vector.verify(signed, BODY), { code: "bad_signature" });

  const receiver = new Receiver([SECRET], { clock });
  const call = receiver.verify(headers(), BODY);
  assert.equal(call.slot?.toISOString(), "2030-02-11T02:00:00.000Z");
  assert.equal(receiver.verify(headers("r1", 1, { secrets: [OTHER, SECRET] }), BODY).fence, 1);
  const wrong: [ReturnType<typeof headers>, string][] = [
    [headers("r1", 1, { secrets: [OTHER] }), "bad_signature"],
    [headers("r1", 1, { at: NOW - 301 }), "too_old"],
    [{ ...headers(), "webhook-signature": "" }, "bad_signature"],
    [{ ...headers(), "Webhook-Id": "" }, "not_a_webhook"],
    [{ ...headers(), "x-chimes-fence": "x" }, "bad_header"],
  ];
  for (const [given, expected] of wrong) {
    assert.throws(() => receiver.verify(given, BODY), { code: expected });
  }
  assert.throws(() => new Receiver([]), /unsigned/);
  assert.throws(() => new Receiver(["secret"]), /whsec_/);
});

test("an effect is performed once", async () => {
  const receiver = new Receiver([SECRET], { clock });
  const calls: Call[] = [];
  const effect = (call: Call) => (calls.push(call), { number: 7 });
  const first = await receiver.receive(headers("r1", 2), BODY, effect);
  const again = await receiver.receive(headers("r1", 3), BODY, effect);
  assert.deepEqual([first, JSON.parse(again.body), calls.length], [again, { number: 7 }, 1]);
  const stale = await receiver.receive(headers("r1", 1), BODY, effect);
  assert.deepEqual([stale.status, code(stale), calls.length], [409, "stale_fence", 1]);
});

test("an attempt waits for an earlier one, and repeats a failed one", async () => {
  const receiver = new Receiver([SECRET], { clock });
  let fail: (error: Error) => void = () => {};
  const first = receiver.receive(
    headers("r1", 1), BODY, () => new Promise((_resolve, reject) => (fail = reject)),
  );
  await new Promise((resolve) => setImmediate(resolve));
  const busy = await receiver.receive(headers("r1", 2), BODY, () => "second");
  assert.deepEqual([busy.status, code(busy), busy.headers], [503, "in_progress", { "Retry-After": "5" }]);
  fail(new Error("no printer"));
  await assert.rejects(first, /no printer/);
  assert.equal((await receiver.receive(headers("r1", 3), BODY, () => "third")).body, "third");
  const refusing = () => { throw new Refused(422, "unknown_customer", "there is no customer 7"); };
  assert.equal(code(await receiver.receive(headers("r2"), BODY, refusing)), "unknown_customer");
});

test("a lost effect is performed again, and old receipts are forgotten", async () => {
  let now = NOW;
  const store = new MemoryStore(2);
  const receiver = new Receiver([SECRET], { store, clock: () => now * 1000, tolerance: 1e9 });
  void receiver.receive(headers("r1", 1), BODY, () => new Promise(() => {}));
  await new Promise((resolve) => setImmediate(resolve));
  now += 901;
  assert.equal((await receiver.receive(headers("r1", 2), BODY, () => "again")).body, "again");
  for (const id of ["r2", "r3"]) await receiver.receive(headers(id), BODY, () => "");
  assert.equal(await store.add("r1", { fence: 1, state: "done", at: 0 }), undefined);
});

/** An attempt fails after `busyFor`, while a later one performs the effect or after it. */
async function checkLateFailure(store: Store): Promise<void> {
  let now = NOW;
  const receiver = new Receiver([SECRET], { store, clock: () => now * 1000, tolerance: 1e9 });
  const begin = async (id: string, fence: number) => {
    let settle: { resolve: (result: string) => void; reject: (error: Error) => void };
    let answer: ReturnType<Receiver["receive"]>;
    await new Promise<void>((started) => {
      answer = receiver.receive(headers(id, fence), BODY, () => {
        started();
        return new Promise<string>((resolve, reject) => (settle = { resolve, reject }));
      });
    });
    return { answer: answer!, ...settle! };
  };
  const never = () => assert.fail("performed twice");
  for (const [id, one, two] of [["late-1", 1, 2], ["late-0", 0, 0]] as const) {
    const first = await begin(id, one);
    now += 901;
    const second = await begin(id, two);
    first.reject(new Error("late"));
    await assert.rejects(first.answer, /late/);
    assert.equal(code(await receiver.receive(headers(id, two), BODY, never)), "in_progress");
    second.resolve("second");
    await second.answer;
    assert.equal((await receiver.receive(headers(id, two), BODY, never)).body, "second");
  }
  const first = await begin("late-2", 1);
  now += 901;
  await receiver.receive(headers("late-2", 2), BODY, () => "second");
  first.reject(new Error("late"));
  await assert.rejects(first.answer, /late/);
  assert.equal((await receiver.receive(headers("late-2", 3), BODY, never)).body, "second");
}

test("a late failure replaces nothing of a later attempt", async () => {
  await checkLateFailure(new MemoryStore());
});

test("receipts in PostgreSQL are shared", { skip: !process.env["POSTGRES_URL"] }, async () => {
  const pool = new pg.Pool({ connectionString: process.env["POSTGRES_URL"] });
  await pool.query("CREATE TABLE chimes_receipts (id TEXT PRIMARY KEY, receipt JSONB NOT NULL)");
  const receivers = [1, 2].map(() => new Receiver([SECRET], { store: new PostgresStore(pool), clock }));
  let calls = 0;
  const answers = await Promise.all(
    receivers.map((each, fence) => each.receive(headers("r1", fence + 1), BODY, () => ++calls)),
  );
  const statuses = answers.map((each) => each.status);
  assert.deepEqual([calls, statuses.filter((each) => each === 200).length > 0], [1, true]);
  const again = await receivers[0]!.receive(headers("r1", 3), BODY, () => ++calls);
  assert.deepEqual([again.body, calls], ["1", 1]);
  const stale = await receivers[1]!.receive(headers("r1", 1), BODY, () => ++calls);
  assert.equal(code(stale), "stale_fence");
  await checkLateFailure(new PostgresStore(pool));
  await pool.end();
});
