import { createPublicKey, verify, type KeyObject } from "node:crypto";
import { blake3 } from "@noble/hashes/blake3.js";
import { MeshError } from "./errors.js";
import type { Plain } from "./wire.js";

/** Epochs begin at multiples of this; that number itself is no envelope's. */
const EPOCH_STRIDE = 1n << 40n;
const MAX_SEQ = (1n << 64n) - 1n;
// In the canonical form the signature is the last member but one, so that it can be cut out without serialising again:
// what remains is, byte by byte, what was signed, and no other spelling of it has a good signature.
const SIGNATURE_AT_END = /,"signature":"([0-9a-f]{128})"(,"type":"[a-z._]{1,64}"\})$/;
const TAIL_BYTES = 256;
const TIME = /^(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)\.(\d{9})Z$/;

export type Fault = "decode_error" | "bad_signature" | "bad_scope" | "bad_chain" | "bad_nonce";

/** An envelope that cannot be believed. */
export class EnvelopeError extends MeshError {
  constructor(readonly fault: Fault, message: string) {
    super(message, fault.replaceAll("_", "-"));
  }
}

/** A key of Signer's, for the times in which its signatures count. */
export interface PublicKey {
  keyId: string;
  key: KeyObject;
  validFromNs: bigint;
  /** 0 while it has no end. */
  validUntilNs: bigint;
}

export type StreamEvent = Record<string, unknown>;

/** One verified link of a tenant's chain. */
export interface Envelope {
  id: string;
  type: string;
  scope: string;
  keyId: string;
  issuedAtNs: bigint;
  epoch: bigint;
  seq: bigint;
  prev: string;
  source: string;
  events: StreamEvent[];
  /** The next one names it as its `prev`. */
  digest: string;
  /** The envelope in the bytes in which it came. */
  body: Buffer;
}

/** The last envelope that a reader has done with; `digest` is empty where it is not known. */
export interface Place {
  seq: bigint;
  digest: string;
}

/** The readable part of a stream: with a bookmark of `low` or more nothing is missing. */
export interface Position {
  epoch: bigint;
  low: bigint;
  high: bigint;
  head: string;
}

/** The signed state of a tenant, the way out of a bookmark that is too old. */
export interface State {
  position: Position;
  /** Events that are kept, by family. */
  events: Record<string, number>;
  body: Buffer;
}

/** A public key of 32 bytes. */
export function publicKey(keyId: string, raw: Buffer, validFromNs: bigint, validUntilNs: bigint): PublicKey {
  const key = createPublicKey({ key: { kty: "OKP", crv: "Ed25519", x: raw.toString("base64url") }, format: "jwk" });
  return { keyId, key, validFromNs, validUntilNs };
}

/** Verifies the envelopes of one tenant one after the other. With `gaps`, numbers may be missing, as in a filtered stream. */
export class Chain {
  /** `end` is the last envelope that was verified; undefined before the first of a stream that is read from anywhere. */
  constructor(
    private readonly tenant: string, public keys: PublicKey[], public end: Place | undefined, private readonly gaps: boolean,
  ) {}

  /** The envelope in these bytes, if it is the next one; otherwise an EnvelopeError, and nothing has changed. */
  verify(body: Buffer): Envelope {
    const { envelope, form, signature } = decodeEnvelope(body);
    if (envelope.scope !== `tenant:${this.tenant}`) {
      throw new EnvelopeError("bad_scope", `An envelope of ${envelope.scope.slice(0, 80)} came.`);
    }
    if (!signedBy(this.keys, envelope.keyId, envelope.issuedAtNs, form, signature)) {
      throw new EnvelopeError("bad_signature", `The signature of envelope ${envelope.seq} does not fit.`);
    }
    // After the signature: a forged number must not be told from a forged signature.
    const why = this.outOfOrder(envelope);
    if (why !== undefined) throw new EnvelopeError("bad_chain", `Envelope ${envelope.seq} ${why}.`);
    this.end = { seq: envelope.seq, digest: envelope.digest };
    return envelope;
  }

  private outOfOrder(e: Envelope): string | undefined {
    const first = e.seq % EPOCH_STRIDE === 1n;
    if (first && e.prev !== "") return "is the first of its epoch and names one before it";
    if (this.end === undefined) return undefined;
    if (e.seq <= this.end.seq) return `came after ${this.end.seq}`;
    const follows = e.seq === this.end.seq + 1n;
    if (!follows && !this.gaps && !(first && e.epoch > this.end.seq / EPOCH_STRIDE)) {
      return `came instead of ${this.end.seq + 1n}`;
    }
    if (follows && !first && this.end.digest !== "" && e.prev !== this.end.digest) return `does not continue ${this.end.seq}`;
    return undefined;
  }
}

function signedBy(keys: PublicKey[], keyId: string, atNs: bigint, form: Buffer, signature: Buffer): boolean {
  return keys.some((one) => one.keyId === keyId && one.validFromNs <= atNs &&
    (one.validUntilNs === 0n || one.validUntilNs > atNs) && verify(null, form, one.key, signature));
}

function cutSignature(body: Buffer): { form: Buffer; signature: Buffer } | undefined {
  const start = Math.max(0, body.length - TAIL_BYTES);
  const tail = body.toString("latin1", start);
  const found = SIGNATURE_AT_END.exec(tail);
  if (found === null) return undefined;
  const form = Buffer.concat([body.subarray(0, start + found.index), Buffer.from(found[2]!, "latin1")]);
  return { form, signature: Buffer.from(found[1]!, "hex") };
}

const text = (value: unknown): string | undefined => (typeof value === "string" ? value : undefined);

/** The envelope of these bytes, of which nothing is verified yet. */
export function decodeEnvelope(body: Buffer): { envelope: Envelope; form: Buffer; signature: Buffer } {
  const refused = (why: string): EnvelopeError => new EnvelopeError("decode_error", `This is not an envelope: ${why}.`);
  const cut = cutSignature(body);
  if (cut === undefined) throw refused("no signature where it must be");
  let members: Plain;
  try {
    members = JSON.parse(new TextDecoder("utf-8", { fatal: true }).decode(body)) as Plain;
  } catch {
    throw refused("no JSON");
  }
  if (Object.keys(members).length !== 10) throw refused("other members than an envelope's");
  const [id, type, scope, keyId, issued, prev] = ["id", "type", "scope", "key_id", "issued_at", "prev"]
    .map((name) => text(members[name]));
  const epoch = readNumber(members["epoch"]);
  const seq = readNumber(members["seq"]);
  if (epoch === undefined || seq === undefined || seq / EPOCH_STRIDE !== epoch || seq % EPOCH_STRIDE === 0n) {
    throw refused("epoch and seq do not belong together");
  }
  const issuedAtNs = readTime(issued);
  const payload = members["payload"] as Plain | null;
  const source = text(payload?.["source"]);
  const events: unknown = payload?.["events"];
  if (source === undefined || !Array.isArray(events)) throw refused("payload without source and events");
  if (id === undefined || type === undefined || scope === undefined || keyId === undefined || prev === undefined ||
    issuedAtNs === undefined) throw refused("a member of another kind");
  const digest = `b3:${Buffer.from(blake3(cut.form)).toString("hex")}`;
  const envelope = {
    id, type, scope, keyId, issuedAtNs, epoch, seq, prev, source, events: events as StreamEvent[], digest, body,
  };
  return { envelope, ...cut };
}

/** A number as an envelope writes it; undefined for any other text. */
function readNumber(value: unknown): bigint | undefined {
  if (typeof value !== "string" || !/^(0|[1-9][0-9]{0,19})$/.test(value)) return undefined;
  const number = BigInt(value);
  return number <= MAX_SEQ ? number : undefined;
}

function readTime(value: string | undefined): bigint | undefined {
  const found = TIME.exec(value ?? "");
  const ms = found === null ? Number.NaN : Date.parse(`${found[1]!}Z`);
  return Number.isNaN(ms) ? undefined : BigInt(ms) * 1_000_000n + BigInt(found![2]!);
}

function positionOf(members: Plain | undefined): Position | undefined {
  const [epoch, low, high] = ["epoch", "low", "high"].map((name) => readNumber(members?.[name]));
  const head = text(members?.["head"]);
  if (epoch === undefined || low === undefined || high === undefined || head === undefined || low > high ||
    high / EPOCH_STRIDE !== epoch) return undefined;
  return { epoch, low, high, head };
}

/** The signed position of a 410. All of its members are texts that need no escapes, so its canonical form is simple. */
export function verifiedPosition(document: Plain | undefined, tenant: string, keys: PublicKey[]): Position {
  const refused = new EnvelopeError("bad_signature", "The statement of the gateway cannot be believed.");
  const { signature, ...members } = (document ?? {}) as Record<string, unknown>;
  const plain = (value: unknown): boolean => typeof value === "string" && /^[A-Za-z0-9:._/-]*$/.test(value);
  if (!Object.entries(members).every(([name, value]) => plain(name) && plain(value))) throw refused;
  const form = Buffer.from(JSON.stringify(Object.fromEntries(Object.entries(members).sort(([a], [b]) => (a < b ? -1 : 1)))));
  const position = positionOf(members as Plain);
  const issuedNs = readTime(text(members["issued_at"]));
  if (position === undefined || issuedNs === undefined || members["type"] !== "snavio.stream.position" ||
    members["scope"] !== `tenant:${tenant}` || !/^[0-9a-f]{128}$/.test(text(signature) ?? "") ||
    !signedBy(keys, text(members["key_id"]) ?? "", issuedNs, form, Buffer.from(signature as string, "hex"))) throw refused;
  return position;
}

/** The signed state in these bytes. */
export function verifiedState(body: Buffer, tenant: string, keys: PublicKey[]): State {
  const refused = new EnvelopeError("bad_signature", "The state cannot be believed.");
  const cut = cutSignature(body);
  if (cut === undefined) throw refused;
  let document: Plain;
  try {
    document = JSON.parse(body.toString()) as Plain;
  } catch {
    throw refused;
  }
  const position = positionOf(document["position"] as Plain | undefined);
  const issuedNs = readTime(text(document["issued_at"]));
  if (position === undefined || issuedNs === undefined || document["type"] !== "snavio.stream.state" ||
    document["scope"] !== `tenant:${tenant}` ||
    !signedBy(keys, text(document["key_id"]) ?? "", issuedNs, cut.form, cut.signature)) throw refused;
  return { position, events: document["events"] as Record<string, number>, body };
}
