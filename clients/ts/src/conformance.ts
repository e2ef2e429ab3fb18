#!/usr/bin/env node
// The program that tests/conformance runs: one JSON request per line on stdin, one JSON answer per line on stdout.
//
// Bytes travel as hex. An error is an answer too: {"error": {"reason": ..., "message": ...}}.
import { createInterface } from "node:readline";
import { sign, signedText } from "./command.js";
import { Consumer, type NackOptions } from "./consumer.js";
import { enrol } from "./enrol.js";
import { Chain, EnvelopeError, publicKey } from "./envelopes.js";
import { meshError } from "./errors.js";
import { Events } from "./events.js";
import { readResponse, type Delivery } from "./hashes.js";
import { Identity } from "./identity.js";
import { Producer, type Message, type Outcome } from "./producer.js";
import { reasonOf } from "./verdict.js";
import { decode, type Plain } from "./wire.js";

const PATIENCE_MS = 30_000;
const bytes = (hex: string | undefined): Buffer => Buffer.from(hex ?? "", "hex");

let opened: Plain = {};
let identity: Identity | undefined;
let principal: Identity | undefined;
let producer: Producer | undefined;
const consumers = new Map<string, Consumer>();
const deliveries: { one: Delivery; owner: Consumer }[] = [];

async function closeAll(): Promise<void> {
  await producer?.close();
  producer = undefined;
  for (const consumer of consumers.values()) consumer.close();
  consumers.clear();
  identity?.close();
  principal?.close();
  identity = principal = undefined;
}

async function sender(): Promise<Producer> {
  const timeoutMs = opened["timeout_s"] === undefined ? PATIENCE_MS : Number(opened["timeout_s"]) * 1000;
  producer ??= await Producer.open({ shield: opened["shield"], signer: opened["signer"], identity: identity!, timeoutMs });
  return producer;
}

const messageOf = (r: Plain): Message => ({
  target: r["target"], name: r["name"], payload: bytes(r["payload"]),
  ...(r["content_type"] === undefined ? {} : { contentType: r["content_type"] }),
  ...(r["id"] === undefined ? {} : { id: r["id"] }),
});

const outcomeOf = ({ verdict, id, attempts, detail, retryAfterMs }: Outcome): Plain =>
  ({ verdict, reason: reasonOf(verdict), id, attempts, detail, retry_after_ms: retryAfterMs });

const tell = (one: Delivery, handle: number): Plain => ({
  handle, attempt: one.attempt, id: one.id, source: one.source, target: one.target, name: one.name,
  payload: one.payload.toString("hex"), integrity: one.integrity,
  payload_hash: one.payloadHash.toString("hex"), hash_chain: one.hashChain.toString("hex"),
});

function consumerFor(r: Plain): Consumer {
  const key = `${String(r["topic"])} ${String(r["visibility_ms"])}`;
  let consumer = consumers.get(key);
  if (consumer === undefined) {
    consumer = new Consumer({
      mailbox: opened["mailbox"], signer: opened["signer"], identity: identity!, topic: r["topic"],
      visibilityMs: r["visibility_ms"],
    });
    consumers.set(key, consumer);
  }
  return consumer;
}

function handed(owner: Consumer, taken: Delivery[]): Plain {
  const messages = taken.map((one) => tell(one, deliveries.push({ one, owner }) - 1));
  return { messages, integrity_failures: owner.integrityFailures };
}

const operations: Record<string, (r: Plain) => Plain | Promise<Plain>> = {
  sign(r) {
    const fields = {
      id: r["fields"]["id"], timestamp: r["fields"]["timestamp"], keyVersion: r["fields"]["key_version"],
      audience: r["fields"]["audience"], target: r["fields"]["target"], name: r["fields"]["name"],
      contentType: r["fields"]["content_type"] ?? "", traceparent: r["fields"]["traceparent"] ?? "",
      payload: bytes(r["payload"]),
    };
    return { signed_text: signedText(fields).toString("hex"), command: sign(bytes(r["secret"]), fields).toString("hex") };
  },
  read(r) {
    const response = decode("ReceiveResponse", bytes(r["response"]));
    return { messages: readResponse(response, r["topic"]).map((one) => tell(one, 0)) };
  },
  async enrol(r) {
    return {
      spiffe_id: await enrol({
        address: r["address"], fingerprint: r["fingerprint"], token: r["token"], name: r["name"], folder: r["folder"],
      }),
    };
  },
  async open(r) {
    await closeAll();
    opened = r;
    if (r["principal"]) principal = await Identity.open({ folder: r["principal"], signer: r["signer"] });
    identity = await Identity.open({
      folder: r["folder"], signer: r["signer"], source: r["source"] ?? "", ttlSeconds: r["ttl_s"] ?? 0,
      ...(principal === undefined ? {} : { principal }),
    });
    return certificate();
  },
  async send(r) {
    return outcomeOf(await (await sender()).send(messageOf(r)));
  },
  async send_many(r) {
    const messages = (r["messages"] as [string, string, string][]).map(([target, name, payload]) =>
      ({ target, name, payload: bytes(payload) }));
    return { outcomes: (await (await sender()).sendBatch(messages)).map(outcomeOf) };
  },
  async send_twice(r) {
    const open = await sender();
    const command = await open.signNow(messageOf(r));
    const first = await open.submit(command);
    return { verdicts: [first.verdict, (await open.submit(command)).verdict] };
  },
  verify(r) {
    const keys = (r["keys"] as Plain[]).map((one) => publicKey(
      one["key_id"], bytes(one["public_key"]), BigInt(one["valid_from_unix_ns"]), BigInt(one["valid_until_unix_ns"])));
    const after = r["after"] as Plain | null;
    const end = after === null ? undefined : { seq: BigInt(after["seq"]), digest: after["digest"] as string };
    const chain = new Chain(r["tenant"], keys, end, r["gaps"] ?? false);
    return { outcomes: (r["bodies"] as string[]).map((body) => outcomeOfEnvelope(chain, bytes(body))) };
  },
  async events(r) {
    const reader = await Identity.open({ folder: r["folder"], signer: r["signer"] });
    const after = r["after"] as Plain | null | undefined;
    const events = new Events({
      gateway: r["gateway"], signer: r["signer"], identity: reader, tenant: r["tenant"], longestPauseMs: 100,
      sources: r["sources"] ?? [],
      ...(after == null ? {} : { bookmark: { seq: BigInt(after["seq"]), digest: after["digest"] as string } }),
    });
    const items: Plain[] = [];
    try {
      for await (const { envelope, reset } of events) {
        if (items.length === r["most"]) break;
        items.push(envelope === undefined ? { reset: String(reset!.position.high) }
          : { seq: String(envelope.seq), source: envelope.source, events: envelope.events });
      }
      const place = events.bookmark!;
      return { items, bookmark: { seq: String(place.seq), digest: place.digest } };
    } finally {
      events.close();
      reader.close();
    }
  },
  async renew() {
    await identity!.renew();
    return {};
  },
  certificate,
  async receive(r) {
    const consumer = consumerFor(r);
    return handed(consumer, await consumer.receive(r["most"], r["wait_ms"]));
  },
  async take(r) {
    const consumer = consumerFor(r);
    const taken: Delivery[] = [];
    while (taken.length < r["most"]) taken.push(...await consumer.receive(r["most"] - taken.length, 1000));
    return handed(consumer, taken);
  },
  // Receives exactly `most` messages over RecvStream.
  async stream(r) {
    const consumer = consumerFor(r);
    const end = new AbortController();
    const taken: Delivery[] = [];
    for await (const one of consumer.stream(r["most"], end.signal)) {
      if (taken.push(one) === r["most"]) break;
    }
    end.abort();
    return handed(consumer, taken);
  },
  ack: (r) => settled(r, (owner, taken) => owner.ack(...taken)),
  nack: (r) => settled(r, (owner, taken) => {
    const options: NackOptions = { reason: r["reason"] ?? "", dead: r["dead"] ?? false };
    if (r["delay_ms"] !== undefined) options.delayMs = r["delay_ms"];
    return owner.nack(options, ...taken);
  }),
  extend: (r) => settled(r, (owner, taken) => owner.extend(r["visibility_ms"], ...taken)),
  async close() {
    await closeAll();
    return {};
  },
};

function outcomeOfEnvelope(chain: Chain, body: Buffer): string {
  try {
    return chain.verify(body).digest;
  } catch (error) {
    if (error instanceof EnvelopeError) return error.fault;
    throw error;
  }
}

function certificate(): Plain {
  return { spiffe_id: identity!.spiffeId, not_after_unix_ns: identity!.bundle.notAfterMs * 1e6 };
}

async function settled(r: Plain, call: (owner: Consumer, taken: Delivery[]) => Promise<number[]>): Promise<Plain> {
  const held = (r["handles"] as number[]).map((handle) => deliveries[handle]!);
  return { codes: await call(held[0]!.owner, held.map(({ one }) => one)) };
}

for await (const line of createInterface({ input: process.stdin })) {
  let told: Plain;
  try {
    const r = JSON.parse(line) as Plain;
    const operation = operations[r["op"]];
    if (operation === undefined) throw new Error(`there is no operation ${String(r["op"])}`);
    told = await operation(r);
  } catch (error) {
    const refused = meshError(error);
    told = { error: { reason: refused.reason, message: refused.message } };
  }
  process.stdout.write(`${JSON.stringify(told)}\n`);
}
await closeAll();
