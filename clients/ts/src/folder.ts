import { X509Certificate, createPrivateKey, generateKeyPairSync, randomBytes, sign as signWith } from "node:crypto";
import { closeSync, fsyncSync, mkdirSync, openSync, readFileSync, readdirSync, readlinkSync, renameSync, rmSync, symlinkSync, writeSync } from "node:fs";
import path from "node:path";
import { MeshError } from "./errors.js";

const CERTIFICATE = "cert.pem";
const KEY = "key.pem";
const CA = "ca.pem";
const CURRENT = "current";
const GENERATION = ".generation-";
/** Signer backdates certificates by this much, for machines whose clock is behind. */
const BACKDATE_MS = 300_000;

/** What a certificate folder holds. */
export interface Bundle {
  certificate: Buffer;
  key: Buffer;
  ca: Buffer;
  leaf: X509Certificate;
  spiffeId: string;
  issuedMs: number;
  notAfterMs: number;
}

/** Reads a folder; MeshError `bad-certificate` when it holds no certificate with its key. */
export function readFolder(folder: string): Bundle {
  try {
    // Through `current` when it is there: a renewal between two reads must not mix two generations.
    const target = readlink(path.join(folder, CURRENT));
    const place = target === undefined ? folder : path.join(folder, target);
    const read = (name: string): Buffer => readFileSync(path.join(place, name));
    return bundleOf(read(CERTIFICATE), read(KEY), read(CA));
  } catch (error) {
    if (error instanceof MeshError) throw error;
    throw new MeshError(`${folder} holds no certificate with its key.`, "bad-certificate");
  }
}

/** A certificate with its key; MeshError unless they belong together and name one identity. */
export function bundleOf(certificate: Buffer, key: Buffer, ca: Buffer): Bundle {
  const leaf = new X509Certificate(certificate);
  if (!leaf.checkPrivateKey(createPrivateKey(key))) {
    throw new MeshError("Certificate and key do not belong together.", "bad-certificate");
  }
  const names = [...(leaf.subjectAltName ?? "").matchAll(/URI:(spiffe:[^,\s]+)/g)];
  if (names.length !== 1) throw new MeshError("The certificate has no single SPIFFE id.", "no-identity");
  const notAfterMs = Date.parse(leaf.validTo);
  const issuedMs = Math.min(Date.parse(leaf.validFrom) + BACKDATE_MS, notAfterMs);
  return { certificate, key, ca, leaf, spiffeId: names[0]![1]!, issuedMs, notAfterMs };
}

/**
 * Replaces all three files at once: each is a link through `current`, which is replaced as one. File by file, a crash
 * in between would leave a certificate with another key. Never waits in between, so that two writers of this process
 * take turns; of two processes only one may renew a folder.
 */
export function writeFolder(folder: string, bundle: Bundle): void {
  mkdirSync(folder, { recursive: true, mode: 0o700 });
  const name = GENERATION + randomBytes(8).toString("hex");
  mkdirSync(path.join(folder, name), { mode: 0o700 });
  writeDurably(path.join(folder, name, CERTIFICATE), bundle.certificate, 0o644);
  writeDurably(path.join(folder, name, KEY), bundle.key, 0o600);
  writeDurably(path.join(folder, name, CA), bundle.ca, 0o644);
  const before = readlink(path.join(folder, CURRENT));
  link(path.join(folder, CURRENT), name);
  for (const file of [CERTIFICATE, KEY, CA]) {
    if (readlink(path.join(folder, file)) !== `${CURRENT}/${file}`) link(path.join(folder, file), `${CURRENT}/${file}`);
  }
  for (const old of readdirSync(folder)) {
    // The one before stays, for a reader that has just opened its first file.
    if (old.startsWith(GENERATION) && old !== name && old !== before) {
      rmSync(path.join(folder, old), { recursive: true, force: true });
    }
  }
}

function readlink(place: string): string | undefined {
  try {
    return readlinkSync(place);
  } catch {
    return undefined;
  }
}

function link(place: string, target: string): void {
  rmSync(`${place}.new`, { force: true });
  symlinkSync(target, `${place}.new`);
  renameSync(`${place}.new`, place);
}

function writeDurably(place: string, content: Buffer, mode: number): void {
  const file = openSync(place, "wx", mode);
  try {
    writeSync(file, content);
    fsyncSync(file);
  } finally {
    closeSync(file);
  }
}

/** The parts of `spiffe://<trust domain>/tenant/<tenant>/<kind>/<name>`. */
export function parseSpiffe(id: string): { trustDomain: string; tenant: string; kind: string; name: string } {
  const match = /^spiffe:\/\/([^/]+)\/tenant\/([^/]+)\/(service|principal)\/([^/]+)$/.exec(id);
  if (match === null) {
    throw new MeshError(`${id} is not the identity of a tenant's service or principal.`, "no-identity");
  }
  return { trustDomain: match[1]!, tenant: match[2]!, kind: match[3]!, name: match[4]! };
}

/** A new P-256 key, and a PKCS#10 request that asks for no name: the CA decides names. Both PEM. */
export function newKeyAndCsr(): { key: Buffer; csr: string } {
  const { privateKey, publicKey } = generateKeyPairSync("ec", { namedCurve: "prime256v1" });
  const spki = publicKey.export({ type: "spki", format: "der" });
  // version 0, an empty subject, the key, no attributes
  const request = der(0x30, Buffer.from([2, 1, 0]), der(0x30), spki, der(0xa0));
  const signature = signWith("sha256", request, privateKey);
  const ecdsaWithSha256 = der(0x30, Buffer.from([6, 8, 0x2a, 0x86, 0x48, 0xce, 0x3d, 4, 3, 2]));
  const csr = der(0x30, request, ecdsaWithSha256, der(3, Buffer.from([0]), signature));
  const lines = csr.toString("base64").match(/.{1,64}/g)!.join("\n");
  return {
    key: Buffer.from(privateKey.export({ type: "pkcs8", format: "pem" }) as string),
    csr: `-----BEGIN CERTIFICATE REQUEST-----\n${lines}\n-----END CERTIFICATE REQUEST-----\n`,
  };
}

function der(tag: number, ...parts: Buffer[]): Buffer {
  const body = Buffer.concat(parts);
  const size = body.length;
  const length = size < 0x80 ? [size] : size < 0x100 ? [0x81, size] : [0x82, size >> 8, size & 0xff];
  return Buffer.concat([Buffer.from([tag, ...length]), body]);
}
