import { Metadata, status } from "@grpc/grpc-js";
import { CALL_MS, Channel } from "./channel.js";
import { MeshError, meshError } from "./errors.js";
import { Integrity, readResponse, type Delivery } from "./hashes.js";
import type { Identity } from "./identity.js";
import { decode, type Plain } from "./wire.js";

/** The mailbox's answer to one receipt. */
export enum Settlement {
  Done = 1,
  /** The lease had ended, so that another consumer may have the message; nothing changed. */
  Late = 2,
  /** The message was settled before, or there is none; nothing changed. */
  Gone = 3,
}

export interface ConsumerOptions {
  mailbox: string;
  /** Gives capabilities; left out, the address that the mailbox names. */
  signer?: string;
  identity: Identity;
  topic: string;
  /** Duration of a lease; 30 s if it is left out. */
  visibilityMs?: number;
  /** To present instead of one that is asked for. */
  capability?: string;
}

export interface NackOptions {
  /** Before the next attempt; left out, the mailbox's pauses are random and grow. */
  delayMs?: number;
  /** For the attempt record, at most 256 bytes. */
  reason?: string;
  /** To the DLQ instead of another attempt. */
  dead?: boolean;
  /** This delivery does not count as an attempt. */
  unseen?: boolean;
}

const MOST_PER_RECEIVE = 1000;
const MOST_BYTES = 1 << 20;
const CHUNK_BYTES = 64 << 10;
const MAX_WHOLE_BYTES = 2 << 20;
const MOST_PER_SETTLE = 8192;

/** Receives the messages of one topic. */
export class Consumer {
  /** Messages that did not match their hashes (E_INTEGRITY) and were given back unseen. */
  integrityFailures = 0;
  private readonly mailbox: Channel;
  private readonly capability: Capability;
  private readonly visibilityMs: number;

  constructor(private readonly options: ConsumerOptions) {
    this.mailbox = new Channel(options.identity, options.mailbox, "mailbox");
    this.capability = new Capability(options);
    this.visibilityMs = options.visibilityMs ?? 30_000;
  }

  /** Ends the connection; leases that are open end by themselves. */
  close(): void {
    this.mailbox.close();
  }

  /** Leases up to `most` messages and waits for a first one. Damaged messages are given back and left out. */
  async receive(most: number, waitMs: number): Promise<Delivery[]> {
    const response = await this.call("Receive", ["ReceiveRequest", "ReceiveResponse"], {
      topic: this.options.topic, visibility_ms: this.visibilityMs, max_messages: Math.min(most, MOST_PER_RECEIVE),
      max_bytes: MOST_BYTES, wait_ms: waitMs,
    }, waitMs + CALL_MS);
    return this.sound(response);
  }

  /**
   * Messages as they come, with at most `credit` of them out at a time; ends when `signal` does. The stream is opened
   * again when the mailbox ends it, and after a renewal.
   */
  async *stream(credit: number, signal: AbortSignal): AsyncGenerator<Delivery> {
    for (let failures = 0; !signal.aborted;) {
      try {
        for await (const delivery of this.streamOnce(credit, signal)) {
          failures = 0;
          yield delivery;
        }
      } catch (error) {
        const refused = meshError(error);
        if (signal.aborted) return;
        if (!refused.retryable) throw refused;
        failures += 1;
        const pause = Math.max(refused.retryAfterMs, 50 * 2 ** Math.min(failures, 5));
        await new Promise((resolve) => setTimeout(resolve, pause));
      }
    }
  }

  private async *streamOnce(credit: number, signal: AbortSignal): AsyncGenerator<Delivery> {
    const presented = await this.capability.present();
    const rpc = this.mailbox.stream("Mailbox/RecvStream", ["RecvStreamRequest", "ReceiveResponse"], carrying(presented));
    const abort = (): void => rpc.cancel();
    signal.addEventListener("abort", abort, { once: true });
    try {
      rpc.write({
        open: {
          topic: this.options.topic, visibility_ms: this.visibilityMs, max_messages: MOST_PER_RECEIVE, max_bytes: MOST_BYTES,
        },
        credit, chunk_bytes: CHUNK_BYTES,
      });
      let pieces: Buffer[] = [];
      let closing = false;
      for await (let frame of rpc as AsyncIterable<Plain>) {
        const piece = frame["piece"] as Buffer;
        if (piece.length > 0) {
          pieces.push(piece);
          if (pieces.reduce((sum, one) => sum + one.length, 0) > MAX_WHOLE_BYTES) throw malformed();
          if (frame["more"]) continue;
          frame = decode("ReceiveResponse", Buffer.concat(pieces));
          pieces = [];
        } else if (pieces.length > 0) {
          throw malformed();
        }
        const runs = (frame["batch"] as Plain[]).flatMap((batch) => batch["run"] as Plain[]);
        const taken = runs.reduce((sum, run) => sum + (run["command"] as Buffer[]).length, 0);
        for (const delivery of await this.sound(frame)) yield delivery;
        if (closing || signal.aborted) continue;
        if (this.mailbox.stale || this.capability.text !== presented) {
          // Another certificate or capability: what is leased for this stream still arrives, then it ends.
          closing = true;
          rpc.end();
        } else if (taken > 0) {
          rpc.write({ credit: taken });
        }
      }
    } catch (error) {
      const refused = meshError(error);
      if (!this.capability.helps(refused)) throw refused;
      await this.capability.replace(presented, refused);
    } finally {
      signal.removeEventListener("abort", abort);
      rpc.cancel();
    }
  }

  /** Ends leases for good, durably. */
  ack(...deliveries: Delivery[]): Promise<Settlement[]> {
    return this.settle("Ack", deliveries, {});
  }

  /** Gives messages back. */
  nack(options: NackOptions, ...deliveries: Delivery[]): Promise<Settlement[]> {
    const { delayMs, reason = "", dead = false, unseen = false } = options;
    return this.settle("Nack", deliveries, { reason, dead, unseen, ...(delayMs === undefined ? {} : { delay_ms: delayMs }) });
  }

  /** Counts the visibility anew, from now on. */
  extend(visibilityMs: number, ...deliveries: Delivery[]): Promise<Settlement[]> {
    return this.settle("Extend", deliveries, { visibility_ms: visibilityMs });
  }

  private async settle(method: string, deliveries: Delivery[], more: Plain): Promise<Settlement[]> {
    const settlements: Settlement[] = [];
    for (let start = 0; start < deliveries.length;) {
      // One call is about one life of the mailbox.
      const epoch = deliveries[start]!.bootEpoch;
      let end = start + 1;
      while (end < deliveries.length && end - start < MOST_PER_SETTLE && deliveries[end]!.bootEpoch === epoch) end += 1;
      const part = deliveries.slice(start, end);
      const response = await this.call(method, [`${method}Request`, "SettleResponse"], {
        topic: this.options.topic, ...more,
        receipts: {
          boot_epoch: epoch, msg_id: part.map((one) => String(one.msgId)), attempt: part.map((one) => one.attempt),
        },
      }, CALL_MS);
      const codes = response["codes"] as Buffer;
      if (codes.length !== part.length) throw malformed();
      settlements.push(...codes);
      start = end;
    }
    return settlements;
  }

  /** Gives back what does not match its hashes; no damaged message reaches the application. */
  private async sound(response: Plain): Promise<Delivery[]> {
    const deliveries = readResponse(response, this.options.topic);
    const changed = deliveries.filter((one) => one.integrity === Integrity.NotAsStored);
    const wrong = deliveries.filter((one) => one.integrity === Integrity.NotAsSent);
    this.integrityFailures += changed.length + wrong.length;
    // The mailbox has it as it was: another attempt may bring it whole.
    await this.nack({ reason: "E_INTEGRITY: payload_hash or hash_chain is not what the mailbox computed" }, ...changed);
    await this.nack({ reason: "E_INTEGRITY: the payload is not what its sender hashed", dead: true }, ...wrong);
    return deliveries.filter((one) => one.integrity <= Integrity.Verified);
  }

  /** One unary call; one that was refused for its capability has done nothing, and is made again with another. */
  private async call(method: string, types: [string, string], request: Plain, withinMs: number): Promise<Plain> {
    for (let again = true; ; again = false) {
      const presented = await this.capability.present();
      try {
        return await this.mailbox.call(`Mailbox/${method}`, types, request, carrying(presented), withinMs);
      } catch (error) {
        const refused = meshError(error);
        if (again && this.options.identity.ended) await this.options.identity.renew();
        else if (again && this.capability.helps(refused)) await this.capability.replace(presented, refused);
        else throw refused;
      }
    }
  }
}

const malformed = (): MeshError => new MeshError("The mailbox's answer cannot be read.", "malformed");

function carrying(capability: string): Metadata {
  const metadata = new Metadata();
  if (capability !== "") metadata.set("snavio-capability", capability);
  return metadata;
}

const HELPED = new Set(["cap-required", "cap-expired", "cap-revoked", "cap-unknown-root"]);

/** What calls to the mailbox carry: asked for on demand, and renewed when two thirds of its life are over. */
class Capability {
  text: string;
  private renewAtMs = Infinity;
  private quietUntilMs = 0;
  private signer: string;
  private asking: Promise<void> | undefined;

  constructor(private readonly options: ConsumerOptions) {
    this.text = options.capability ?? "";
    this.signer = options.signer ?? "";
  }

  async present(): Promise<string> {
    if (Date.now() >= this.renewAtMs) {
      // The old one is good for a while; Signer may be back by then.
      await this.ask().catch(() => { this.renewAtMs = Date.now() + 5000; });
    }
    return this.text;
  }

  /** True if another capability could change this answer. */
  helps(refusal: MeshError): boolean {
    return this.options.capability === undefined && HELPED.has(refusal.reason);
  }

  /** Asks Signer for another one, unless that was done since. */
  async replace(presented: string, refusal: MeshError): Promise<void> {
    if (this.text !== presented) return;
    this.signer ||= refusal.signer;
    if (this.asking === undefined && Date.now() < this.quietUntilMs) {
      // Just issued, and the mailbox does not know its root yet: Signer must not be flooded.
      throw new MeshError(refusal.message, refusal.reason, status.UNAVAILABLE);
    }
    this.quietUntilMs = Date.now() + 500;
    await this.ask();
  }

  private ask(): Promise<void> {
    this.asking ??= this.issue().finally(() => { this.asking = undefined; });
    return this.asking;
  }

  private async issue(): Promise<void> {
    if (this.signer === "") throw new MeshError("Nobody has said where Signer is.", "no-signer");
    // Its certificate has to be Signer's, whoever named the address.
    const channel = new Channel(this.options.identity, this.signer, "signer");
    try {
      const asked = Date.now();
      const told = await channel.call("Signer/IssueCapability", ["IssueCapabilityRequest", "IssueCapabilityResponse"], {
        realm: this.options.topic, operation: ["recv", "ack", "nack", "extend", "stats"],
      });
      this.text = told["capability"];
      this.renewAtMs = asked + (Number(told["ttl_seconds"]) * 2000) / 3;
    } finally {
      channel.close();
    }
  }
}
