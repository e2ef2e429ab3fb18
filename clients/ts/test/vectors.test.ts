import assert from "node:assert/strict";
import { readFileSync } from "node:fs";
import { test } from "node:test";
import { sign, signedText, timestamp } from "../src/command.js";
import { Integrity, readResponse } from "../src/hashes.js";
import { chooseKey, type KeyVersion } from "../src/keys.js";
import { newKeyAndCsr } from "../src/folder.js";
import { Verdict, known, reasonOf } from "../src/verdict.js";
import { decode, encode, type Plain } from "../src/wire.js";

// dist/test → the repository
const vectors = (name: string): Plain =>
  // JSON's numbers cannot hold nanoseconds.
  JSON.parse(readFileSync(new URL(`../../../../tests/vectors/${name}.json`, import.meta.url), "utf8")
    .replace(/("stored_unix_ns": )(\d+)/g, '$1"$2"')) as Plain;
const bytes = (hex: string): Buffer => Buffer.from(hex, "hex");

for (const vector of vectors("commands")["worked"] as Plain[]) {
  test(`signs: ${String(vector["title"])}`, () => {
    const f = vector["fields"] as Plain;
    const fields = {
      id: f["id"], timestamp: f["timestamp"], keyVersion: f["key_version"], audience: f["audience"], target: f["target"],
      name: f["name"], contentType: f["content_type"] ?? "", traceparent: f["traceparent"] ?? "", payload: bytes(vector["payload"]),
    };
    assert.equal(signedText(fields).toString("hex"), vector["signed_text"]);
    assert.equal(sign(bytes(vector["secret"]), fields).toString("hex"), vector["command"]);
  });
}

for (const vector of vectors("message_hashes")["messages"] as Plain[]) {
  // The vector has the runs of a LeasedBatch as they stand on the wire; the rest of it is added here.
  const batch = decode("LeasedBatch", bytes(vector["runs_hex"]));
  const response = (change: (batch: Plain) => void = () => undefined): Plain => {
    const whole: Plain = {
      ...batch, batch_id: "3", first: 7, attempt: 1, stored_unix_ns: vector["stored_unix_ns"],
      payload_hash: bytes(vector["payload_hash"]), hash_chain: bytes(vector["hash_chain"]),
    };
    change(whole);
    return decode("ReceiveResponse", encode("ReceiveResponse", { boot_epoch: "1", batch: [whole] }));
  };

  test(`hashes: ${String(vector["title"])}`, () => {
    const [one] = readResponse(response(), vector["topic"]);
    assert.equal(one!.payloadHash.toString("hex"), vector["payload_hash"]);
    assert.equal(one!.hashChain.toString("hex"), vector["hash_chain"]);
    assert.equal(one!.integrity, Integrity.Verified);
    assert.equal(one!.msgId, 3n * 1024n + 7n);
  });

  test(`notices damage: ${String(vector["title"])}`, () => {
    const [elsewhere] = readResponse(response(), `${String(vector["topic"])}x`);
    assert.equal(elsewhere!.integrity, Integrity.NotAsStored);
    const [forged] = readResponse(response((b) => { b["payload_hash"] = Buffer.alloc(32); }), vector["topic"]);
    assert.equal(forged!.integrity, Integrity.NotAsStored);
    const silent = response((b) => { b["payload_hash"] = b["hash_chain"] = Buffer.alloc(0); });
    assert.equal(readResponse(silent, vector["topic"])[0]!.integrity, Integrity.Unverified);
    const half = response((b) => { b["hash_chain"] = Buffer.alloc(0); });
    assert.throws(() => readResponse(half, vector["topic"]), { reason: "malformed" });
  });
}

test("every verdict of the protos has its name here, and an unknown one is no delivery", () => {
  const batch = readFileSync(new URL("../proto/snavio/v1/batch.proto", import.meta.url), "utf8");
  const values = [...batch.matchAll(/VERDICT_([A-Z_]+) = (\d+);/g)].filter(([, name]) => name !== "UNSPECIFIED");
  assert.ok(values.length > 30);
  for (const [, name, code] of values) {
    assert.equal(reasonOf(known(Number(code))), name!.toLowerCase().replaceAll("_", "-"));
  }
  assert.equal(known(99), Verdict.OutcomeUnknown);
});

test("the newest key whose time has come signs, and Signer's choice where the clock is behind", () => {
  const key = (version: string, from: bigint, more: Partial<KeyVersion> = {}): KeyVersion =>
    ({ version, secret: Buffer.alloc(32), notBeforeNs: 0n, notAfterNs: 0n, primaryFromNs: from, revoked: false, ...more });
  const keys = [key("hmac-v1", 10n), key("hmac-v2", 20n), key("hmac-v3", (1n << 63n) - 1n)];
  assert.equal(chooseKey(keys, "hmac-v2", 15n)?.version, "hmac-v1");
  assert.equal(chooseKey(keys, "hmac-v2", 20n)?.version, "hmac-v2");
  assert.equal(chooseKey(keys, "hmac-v2", 5n)?.version, "hmac-v2");
  assert.equal(chooseKey([key("hmac-v1", 10n, { revoked: true })], "hmac-v1", 20n), undefined);
  assert.equal(chooseKey([key("hmac-v1", 10n, { notAfterNs: 20n })], "", 20n), undefined);
});

test("times have nine fractional digits", () => {
  assert.equal(timestamp(1_700_000_000_123_456_789n), "2023-11-14T22:13:20.123456789Z");
  assert.equal(timestamp(1_700_000_000_000_000_001n), "2023-11-14T22:13:20.000000001Z");
});

test("a certificate request is a PKCS#10 of a P-256 key", () => {
  assert.match(newKeyAndCsr().csr, /^-----BEGIN CERTIFICATE REQUEST-----\n[\s\S]+-----END CERTIFICATE REQUEST-----\n$/);
});
