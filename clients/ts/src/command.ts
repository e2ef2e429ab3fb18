import { createHmac, randomBytes } from "node:crypto";

/** The only value of a command's type. */
export const COMMAND_TYPE = "snavio.command-sent";

/** The parts of a command that its tag covers, and its trace context, which it does not cover. */
export interface Fields {
  id: string;
  timestamp: string;
  keyVersion: string;
  audience: string;
  target: string;
  name: string;
  contentType?: string;
  traceparent?: string;
  payload: Uint8Array;
}

/**
 * What the HMAC covers. No field above the payload can hold a line feed, so no byte can move from one field to another.
 */
export function signedText(f: Fields): Buffer {
  const lines = [
    "SNAVIO1", f.keyVersion, f.audience, f.id, f.timestamp, COMMAND_TYPE, f.target, f.name, f.contentType ?? "",
    String(f.payload.length), "",
  ];
  return Buffer.concat([Buffer.from(lines.join("\n")), f.payload]);
}

/** The serialised Command, ready to be sent once. */
export function sign(secret: Uint8Array, f: Fields): Buffer {
  const tag = createHmac("sha256", secret).update(signedText(f)).digest();
  const parts: Buffer[] = [];
  const put = (number: number, value: string | Uint8Array | undefined): void => {
    const bytes = typeof value === "string" ? Buffer.from(value) : value;
    if (bytes !== undefined && bytes.length > 0) {
      parts.push(Buffer.from([(number << 3) | 2]), varint(bytes.length), Buffer.from(bytes));
    }
  };
  put(1, f.id);
  put(2, f.timestamp);
  put(3, COMMAND_TYPE);
  put(4, f.keyVersion);
  put(5, f.audience);
  put(6, tag);
  put(7, f.target);
  put(8, f.name);
  put(9, f.contentType);
  put(10, f.payload);
  put(11, f.traceparent);
  return Buffer.concat(parts);
}

function varint(value: number): Buffer {
  const bytes: number[] = [];
  for (; value > 0x7f; value >>>= 7) bytes.push((value & 0x7f) | 0x80);
  bytes.push(value);
  return Buffer.from(bytes);
}

/** Nanoseconds since the epoch as a command carries them: UTC with nine fractional digits. */
export function timestamp(unixNs: bigint): string {
  const fraction = String(unixNs % 1_000_000_000n).padStart(9, "0");
  return new Date(Number(unixNs / 1_000_000_000n) * 1000).toISOString().replace(/\.\d+Z$/, `.${fraction}Z`);
}

/** A UUID of version 7, which sorts by time. */
export function newId(): string {
  const bytes = randomBytes(16);
  bytes.writeUIntBE(Date.now(), 0, 6);
  bytes[6] = (bytes[6]! & 0x0f) | 0x70;
  bytes[8] = (bytes[8]! & 0x3f) | 0x80;
  return bytes.toString("hex").replace(/^(.{8})(.{4})(.{4})(.{4})(.{12})$/, "$1-$2-$3-$4-$5");
}
