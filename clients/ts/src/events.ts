import type { IncomingMessage } from "node:http";
import { request } from "node:https";
import { status as codes } from "@grpc/grpc-js";
import { Channel } from "./channel.js";
import { Chain, EnvelopeError, decodeEnvelope, publicKey, verifiedPosition, verifiedState, type Envelope, type Fault, type Place,
  type PublicKey, type State } from "./envelopes.js";
import { MeshError } from "./errors.js";
import { parseSpiffe } from "./folder.js";
import type { Identity } from "./identity.js";
import type { Plain } from "./wire.js";

const FIRST_PAUSE_MS = 200;
const LONGEST_PAUSE_MS = 15_000;
/** Three heartbeats. */
const SILENCE_MS = 45_000;
/** In a row: a server that lies does not stop because it is asked again. */
const MOST_REFUSALS = 8;
const MOST_EVENT_BYTES = 4 << 20;
const MOST_NONCES = 100_000;
const KEYS_AT_MOST_EVERY_MS = 1000;
/** One that an emergency rotation ended must not count for ever. */
const KEYS_AGE_MS = 300_000;
const OUTSIDE_OF_REPLAYS = "last_event_id_outside_replay_window";

export interface EventsOptions {
  /** Addresses, host:port. */
  gateway: string;
  signer: string;
  identity: Identity;
  tenant: string;
  /** Choose envelopes; without them all come. */
  sources?: string[];
  types?: string[];
  /** For the stream, for others than the tenant's principals. */
  capability?: string;
  /** Where an earlier reader stopped; without one it begins with what comes from now on. */
  bookmark?: Place;
  /** Between two connections. */
  longestPauseMs?: number;
}

/** A verified envelope, or a reset where some were missed: the state to go on from. */
export type Item = { envelope: Envelope; reset?: undefined } | { reset: State; envelope?: undefined };

/** Follows a tenant's signed events: `for await (const item of events)`. One loop at a time. */
export class Events implements AsyncIterable<Item> {
  /** What was not believed, by fault, and what came twice. */
  readonly refused = new Map<Fault, number>();
  replays = 0;
  private place: Place | undefined;
  private keys: PublicKey[] = [];
  private askedMs = 0;
  private readonly seen = new Set<string>();
  private readonly signer: Channel;
  private readonly ended = new AbortController();

  constructor(private readonly options: EventsOptions) {
    this.place = options.bookmark;
    this.signer = new Channel(options.identity, options.signer, "signer");
  }

  /** After the last item that was done with: the next one was asked for. Store it to go on later. */
  get bookmark(): Place | undefined {
    return this.place;
  }

  close(): void {
    this.ended.abort();
    this.signer.close();
  }

  /** Throws when the gateway refuses the reader itself, or when what comes cannot be believed again and again. */
  async *[Symbol.asyncIterator](): AsyncGenerator<Item, void, void> {
    let pauseMs = FIRST_PAUSE_MS;
    let refusals = 0;
    while (!this.ended.signal.aborted) {
      let hintMs = 0;
      try {
        for await (const item of this.connected()) {
          yield item;
          const { envelope, reset } = item;
          this.place = envelope === undefined ? { seq: reset.position.high, digest: reset.position.head }
            : { seq: envelope.seq, digest: envelope.digest };
          pauseMs = FIRST_PAUSE_MS;
          refusals = 0;
        }
      } catch (error) {
        if (this.ended.signal.aborted) return;
        if (error instanceof EnvelopeError) {
          this.refused.set(error.fault, (this.refused.get(error.fault) ?? 0) + 1);
          refusals += 1;
          if (refusals >= MOST_REFUSALS) throw error;
        } else if (error instanceof MeshError && !error.retryable) {
          throw error;
        } else if (error instanceof MeshError) {
          hintMs = error.retryAfterMs;
        }
      }
      // Also after a clean end: a server that ends every stream at once must not be asked without a pause.
      await sleep(Math.max(hintMs, pauseMs * (0.5 + Math.random() / 2)), this.ended.signal);
      pauseMs = Math.min(this.options.longestPauseMs ?? LONGEST_PAUSE_MS, pauseMs * 2);
    }
  }

  /** One connection, to its end. */
  private async *connected(): AsyncGenerator<Item, void, void> {
    const { sources = [], types = [], tenant } = this.options;
    const query = new URLSearchParams([
      ...sources.map((each) => ["source", each]), ...types.map((each) => ["type", each]),
    ] as [string, string][]);
    const answer = await this.get(`/events?${query.toString()}`, {
      accept: "text/event-stream", ...(this.place === undefined ? {} : { "last-event-id": String(this.place.seq) }),
    });
    try {
      if (answer.statusCode !== 200) {
        const { error, document } = await problemOf(answer);
        if (answer.statusCode !== 410 || error.reason !== OUTSIDE_OF_REPLAYS) throw error;
        yield { reset: await this.reset(document["position"] as Plain | undefined) };
        return;
      }
      const chain = new Chain(tenant, this.keys, this.place, sources.length + types.length > 0);
      for await (const { id, data } of readEvents(answer)) {
        const envelope = await this.verified(chain, id, data);
        if (envelope !== undefined) yield { envelope };
      }
    } finally {
      answer.destroy();
    }
  }

  /** Undefined for an envelope that was seen before. */
  private async verified(chain: Chain, id: string, data: Buffer): Promise<Envelope | undefined> {
    const before = chain.end;
    let envelope: Envelope;
    try {
      envelope = await this.withKeys(chain, data);
    } catch (error) {
      if (error instanceof EnvelopeError && error.fault === "bad_chain" && this.seen.has(decodeEnvelope(data).envelope.id)) {
        this.replays += 1;
        return undefined;
      }
      throw error;
    }
    // The id decides where the next connection begins: one that is not the envelope's own would skip others.
    if (id !== String(envelope.seq)) {
      chain.end = before;
      throw new EnvelopeError("decode_error", "The event's id is not its envelope's number.");
    }
    if (this.seen.has(envelope.id)) {
      chain.end = before;
      throw new EnvelopeError("bad_nonce", "An id came twice.");
    }
    this.seen.add(envelope.id);
    // A set keeps the order of insertion.
    if (this.seen.size > MOST_NONCES) for (const oldest of this.seen) { this.seen.delete(oldest); break; }
    return envelope;
  }

  private async withKeys(chain: Chain, data: Buffer): Promise<Envelope> {
    if (Date.now() - this.askedMs >= KEYS_AGE_MS) {
      await this.fetchKeys();
      chain.keys = this.keys;
    }
    try {
      return chain.verify(data);
    } catch (error) {
      const unknown = error instanceof EnvelopeError && error.fault === "bad_signature";
      if (!unknown || Date.now() - this.askedMs < KEYS_AT_MOST_EVERY_MS) throw error;
    }
    await this.fetchKeys();
    chain.keys = this.keys;
    return chain.verify(data);
  }

  private async fetchKeys(): Promise<void> {
    this.askedMs = Date.now();
    const told = await this.signer.call("Signer/GetPublicKeys", ["GetPublicKeysRequest", "PublicKeys"],
      { scope: `tenant:${this.options.tenant}`, include_ended: true });
    this.keys = (told["key"] as Plain[]).map((one) => publicKey(
      one["key_id"], one["public_key"], BigInt(one["valid_from_unix_ns"]), BigInt(one["valid_until_unix_ns"])));
  }

  /** The state to go on from; an error unless both statements are signed and say that the place is gone. */
  private async reset(told: Plain | undefined): Promise<State> {
    await this.fetchKeys();
    const position = verifiedPosition(told, this.options.tenant, this.keys);
    if (this.place === undefined || this.place.seq >= position.low) {
      throw new EnvelopeError("bad_chain", "The gateway says that the bookmark is gone, and signs that it is not.");
    }
    const answer = await this.get("/state", {});
    if (answer.statusCode !== 200) throw (await problemOf(answer)).error;
    const state = verifiedState(await bodyOf(answer), this.options.tenant, this.keys);
    if (this.place.seq >= state.position.high) {
      throw new EnvelopeError("bad_chain", "The state is older than the bookmark.");
    }
    return state;
  }

  private get(path: string, headers: Record<string, string>): Promise<IncomingMessage> {
    const { gateway, tenant, capability, identity } = this.options;
    const { certificate, key, ca, spiffeId } = identity.bundle;
    const servername = `gateway.mesh.${parseSpiffe(spiffeId).trustDomain}`;
    const options = {
      headers: { ...headers, ...(capability === undefined ? {} : { "snavio-capability": capability }) },
      agent: false as const, cert: certificate, key, ca, servername, signal: this.ended.signal, timeout: SILENCE_MS,
    };
    return new Promise((resolve, reject) => {
      const place = `https://${gateway}/v1/tenants/${encodeURIComponent(tenant)}${path}`;
      const asked = request(place, options, resolve);
      asked.on("timeout", () => asked.destroy(new Error("Nothing came for three heartbeats.")));
      asked.on("error", (error) => reject(unavailable(error)));
      asked.end();
    });
  }
}

const unavailable = (error: unknown): MeshError =>
  new MeshError(error instanceof Error ? error.message : String(error), "unavailable", codes.UNAVAILABLE);

async function bodyOf(answer: IncomingMessage): Promise<Buffer> {
  const parts: Buffer[] = [];
  let size = 0;
  try {
    for await (const part of answer as AsyncIterable<Buffer>) {
      size += part.length;
      if (size > MOST_EVENT_BYTES) throw new EnvelopeError("decode_error", "An answer is too large.");
      parts.push(part);
    }
  } catch (error) {
    throw error instanceof MeshError ? error : unavailable(error);
  }
  return Buffer.concat(parts);
}

async function problemOf(answer: IncomingMessage): Promise<{ error: MeshError; document: Plain }> {
  const body = await bodyOf(answer);
  let document: Plain = {};
  try {
    document = JSON.parse(body.toString()) as Plain;
  } catch {
    // The status says enough.
  }
  const status = answer.statusCode ?? 0;
  const code = status === 429 ? codes.RESOURCE_EXHAUSTED : status >= 500 ? codes.UNAVAILABLE : codes.FAILED_PRECONDITION;
  const hintMs = Math.min(300, Number(answer.headers["retry-after"] ?? 0) || 0) * 1000;
  const detail = String(document["detail"] ?? `The gateway answered ${status}.`);
  return { error: new MeshError(detail, String(document["reason"] ?? ""), code, hintMs), document };
}

/** The events of a stream that have data. Lines end with LF, as the gateway's do, or CRLF. */
async function* readEvents(answer: IncomingMessage): AsyncGenerator<{ id: string; data: Buffer }, void, void> {
  let pieces: Buffer[] = [];
  let size = 0;
  let data: Buffer[] = [];
  let id = "";
  const lines = function* (chunk: Buffer): Generator<Buffer> {
    let begin = 0;
    for (let end = chunk.indexOf(10); end >= 0; end = chunk.indexOf(10, begin)) {
      const line = Buffer.concat([...pieces, chunk.subarray(begin, end)]);
      pieces = [];
      begin = end + 1;
      yield line.at(-1) === 13 ? line.subarray(0, -1) : line;
    }
    if (begin < chunk.length) pieces.push(chunk.subarray(begin));
  };
  try {
    for await (const chunk of answer as AsyncIterable<Buffer>) {
      size += chunk.length;
      for (const line of lines(chunk)) {
        if (line.length === 0) {
          if (data.length > 0) yield { id, data: data.length === 1 ? data[0]! : joined(data) };
          [data, id, size] = [[], "", 0];
          continue;
        }
        const colon = line.indexOf(58);
        const name = line.toString("latin1", 0, colon < 0 ? line.length : colon);
        let value = colon < 0 ? Buffer.alloc(0) : line.subarray(colon + 1);
        if (value[0] === 32) value = value.subarray(1);
        if (name === "data") data.push(value);
        else if (name === "id") id = value.toString("latin1");
      }
      if (size > 2 * MOST_EVENT_BYTES) throw new EnvelopeError("decode_error", "An event is too large.");
    }
  } catch (error) {
    throw error instanceof MeshError ? error : unavailable(error);
  }
}

const joined = (lines: Buffer[]): Buffer => Buffer.concat(lines.flatMap((line, place) => (place === 0 ? [line] : [Buffer.from("\n"), line])));

function sleep(ms: number, signal: AbortSignal): Promise<void> {
  return new Promise((resolve) => {
    const timer = setTimeout(resolve, ms);
    signal.addEventListener("abort", () => { clearTimeout(timer); resolve(); }, { once: true });
  });
}
