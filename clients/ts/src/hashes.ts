import { blake3 } from "@noble/hashes/blake3.js";
import { timestamp } from "./command.js";
import { MeshError } from "./errors.js";
import { decode, type Plain } from "./wire.js";

/** The outcome of comparing a message with its hashes. */
export enum Integrity {
  /** The mailbox sent no hashes. */
  Unverified = 0,
  Verified = 1,
  /** It changed on its way from the mailbox, which has it as it was. */
  NotAsStored = 2,
  /** It changed before the mailbox stored it; every attempt would bring the same. */
  NotAsSent = 3,
}

/** One received message under its lease. */
export interface Delivery {
  msgId: bigint;
  attempt: number;
  /** Of the command, the same in every attempt; of a message from Send its corr_id. */
  id: string;
  source: string;
  target: string;
  name: string;
  contentType: string;
  traceparent: string;
  sentAt: string;
  payload: Buffer;
  idemKey: string;
  attributes: Record<string, string>;
  storedUnixNs: bigint;
  shard: number;
  integrity: Integrity;
  /** As computed here, from the message's bytes. */
  payloadHash: Buffer;
  hashChain: Buffer;
  bootEpoch: string;
}

const MESSAGES_PER_BATCH = 1024n;

export const payloadHash = (payload: Uint8Array): Buffer => Buffer.from(blake3(payload));

/**
 * The chain value of a message: BLAKE3 over topic, time, idem_key, payload hash and attributes by name, each behind its
 * length as eight bytes, little-endian.
 */
export function hashChain(topic: string, storedUnixNs: bigint, source: string, hash: Uint8Array, m: Plain): Buffer {
  const attributes: [string, string][] = (m["attr"] as Plain[]).map((one) => [one["name"], one["value"]]);
  const add = (name: string, value: string): void => {
    if (value !== "") attributes.push([name, value]);
  };
  const command = m["name"] !== "";
  if (command) add("snavio.timestamp", m["timestamp"]);
  add("content-type", m["content_type"]);
  add("snavio.name", m["name"]);
  add("snavio.source", source);
  add("snavio.target", m["target"]);
  add("traceparent", m["traceparent"]);
  // Names are ASCII, so that code units are bytes.
  attributes.sort(([a], [b]) => (a < b ? -1 : a > b ? 1 : 0));
  const idemKey: string = command ? `${source}#${String(m["id"])}` : m["idem_key"];
  const parts: (string | Uint8Array)[] = [topic, timestamp(storedUnixNs), idemKey, hash, ...attributes.flat()];
  return Buffer.from(blake3(Buffer.concat(parts.flatMap((part) => {
    const bytes = Buffer.from(part as string);
    const length = Buffer.alloc(8);
    length.writeBigUInt64LE(BigInt(bytes.length));
    return [length, bytes];
  }))));
}

const malformed = (): MeshError => new MeshError("The mailbox's answer cannot be read.", "malformed");

/** The messages of a ReceiveResponse, each compared with its hashes. */
export function readResponse(response: Plain, topic: string): Delivery[] {
  return (response["batch"] as Plain[]).flatMap((batch) => {
    let number = BigInt(batch["first"]);
    const storedUnixNs = BigInt(batch["stored_unix_ns"]);
    const deliveries: Delivery[] = [];
    for (const run of batch["run"] as Plain[]) {
      for (const stored of run["command"] as Buffer[]) {
        if (number >= MESSAGES_PER_BATCH) throw malformed();
        let m: Plain;
        try {
          m = decode("StoredCommand", stored);
        } catch {
          throw malformed();
        }
        const hash = payloadHash(m["payload"]);
        const sent = m["payload_hash"] as Buffer;
        deliveries.push({
          msgId: BigInt(batch["batch_id"]) * MESSAGES_PER_BATCH + number, attempt: Number(batch["attempt"]),
          id: m["id"], source: run["source"], target: m["target"], name: m["name"], contentType: m["content_type"],
          traceparent: m["traceparent"], sentAt: m["timestamp"], payload: m["payload"], idemKey: m["idem_key"],
          attributes: Object.fromEntries((m["attr"] as Plain[]).map((one) => [one["name"], one["value"]])),
          storedUnixNs, shard: Number(batch["shard"]),
          integrity: sent.length > 0 && !hash.equals(sent) ? Integrity.NotAsSent : Integrity.Unverified,
          payloadHash: hash, hashChain: hashChain(topic, storedUnixNs, run["source"], hash, m),
          bootEpoch: String(response["boot_epoch"]),
        });
        number += 1n;
      }
    }
    compare(deliveries, batch["payload_hash"], batch["hash_chain"]);
    return deliveries;
  });
}

/** One of each hash for every message, or none at all. */
function compare(deliveries: Delivery[], hashes: Buffer, chains: Buffer): void {
  if (hashes.length === 0 && chains.length === 0) return;
  if (hashes.length !== 32 * deliveries.length || chains.length !== hashes.length) throw malformed();
  deliveries.forEach((one, place) => {
    const [from, to] = [32 * place, 32 * place + 32];
    if (!one.payloadHash.equals(hashes.subarray(from, to)) || !one.hashChain.equals(chains.subarray(from, to))) {
      // Before the sender's hash: what changed on its way is whole in the mailbox, and comes again.
      one.integrity = Integrity.NotAsStored;
    } else if (one.integrity === Integrity.Unverified) {
      one.integrity = Integrity.Verified;
    }
  });
}
