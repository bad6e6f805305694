/**
 * An Express service whose orders are booked once. The receipts are in memory: use a PostgresStore
 * if the service may restart in the middle of a call.
 *
 *     CHIMES_SIGNING_SECRET=whsec_… node with_express.mjs 8000
 */

import { appendFile } from "node:fs/promises";
import { setTimeout as sleep } from "node:timers/promises";

import { Receiver } from "chimes-client/receiver";
import express from "express";

const receiver = new Receiver([process.env.CHIMES_SIGNING_SECRET]);
const app = express();

app.post("/orders", receiver.handler(async (call) => {
  console.log(`booking for run ${call.runId}, attempt ${call.attempt}`);
  await sleep(1000 * Number(process.env.WORK_SECONDS ?? 0)); // stands for slow work
  await appendFile("orders.txt", `${call.runId} ${call.attempt}\n`);
  return { booked: call.json().order };
}));

app.listen(Number(process.argv[2]), "127.0.0.1");
