import { fileURLToPath } from "node:url";
import path from "node:path";
import protobuf from "protobufjs";

/** A message as a plain object: fields under their proto names, 64-bit numbers as text, bytes as Buffers. */
// eslint-disable-next-line @typescript-eslint/no-explicit-any
export type Plain = Record<string, any>;

const FILES = ["shield", "signer", "mailbox", "enrolment", "command"];
const PROTO = fileURLToPath(new URL("../proto", import.meta.url));
let loaded: protobuf.Root | undefined;

function root(): protobuf.Root {
  if (loaded === undefined) {
    const fresh = new protobuf.Root();
    fresh.resolvePath = (_origin, target) => path.resolve(PROTO, target);
    loaded = fresh.loadSync(FILES.map((name) => `snavio/v1/${name}.proto`), { keepCase: true });
  }
  return loaded;
}

/** Writes a message of `snavio.v1`. */
export function encode(type: string, message: Plain): Buffer {
  const known = root().lookupType(`snavio.v1.${type}`);
  return Buffer.from(known.encode(known.fromObject(message)).finish());
}

/** Reads a message of `snavio.v1`; every field is there, absent ones with their default. */
export function decode(type: string, bytes: Uint8Array): Plain {
  const known = root().lookupType(`snavio.v1.${type}`);
  return known.toObject(known.decode(bytes), { longs: String, defaults: true, arrays: true, bytes: Buffer });
}
