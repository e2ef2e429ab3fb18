import { Client, Metadata, credentials } from "@grpc/grpc-js";
import { createHash, X509Certificate } from "node:crypto";
import { existsSync } from "node:fs";
import path from "node:path";
import { connect, type DetailedPeerCertificate } from "node:tls";
import { CALL_MS, channelOptions, unary } from "./channel.js";
import { MeshError } from "./errors.js";
import { newKeyAndCsr } from "./folder.js";
import { keep } from "./identity.js";

export interface Enrolment {
  /** The enrolment server, host:port. */
  address: string;
  /** SHA-256 of the CA in hex. Left out, the one in the token counts; given, both must agree. */
  fingerprint?: string;
  /** Good for one enrolment. */
  token: string;
  /** The principal's name; may be empty where the token fixes it. */
  name?: string;
  /** For key, certificate and CA. One that holds a certificate already is refused. */
  folder: string;
}

/**
 * Trades a token for a principal's certificate and writes it to the folder; returns the SPIFFE id.
 *
 * The token is sent only to a server whose CA has the fingerprint; nothing is sent before that was seen.
 */
export async function enrol(e: Enrolment): Promise<string> {
  const token = e.token.trim();
  const match = /^snv1\.([0-9a-f]{64})\.[a-z2-7]{56}$/.exec(token);
  if (match === null) throw new MeshError("This is not an enrolment token.", "bad-token");
  const fingerprint = match[1]!;
  const given = (e.fingerprint ?? "").toLowerCase().replaceAll(":", "");
  if (given !== "" && given !== fingerprint) {
    throw new MeshError("The token is of another installation than the fingerprint; nothing was sent.", "wrong-installation");
  }
  if (existsSync(path.join(e.folder, "cert.pem"))) {
    throw new MeshError(`${e.folder} holds a certificate already; choose another folder.`, "folder-taken");
  }
  const ca = await pinnedCa(e.address, fingerprint);
  const named = /URI:spiffe:\/\/([^,\s/]+)/.exec(ca.subjectAltName ?? "");
  if (named === null) throw new MeshError("The CA does not name its installation.", "bad-ca");
  const caPem = ca.toString();
  const { key, csr } = newKeyAndCsr();
  const client = new Client(
    e.address, credentials.createSsl(Buffer.from(caPem)), channelOptions(`signer.mesh.${named[1]!}`));
  try {
    const answer = await unary(client, "Enrolment/Enroll", ["EnrollRequest", "EnrollResponse"],
      { token, csr_pem: csr, name: e.name ?? "" }, new Metadata(), CALL_MS);
    // With the CA that the token names, whatever the answer calls it.
    keep(e.folder, answer["certificate_pem"], key, caPem, answer["spiffe_id"]);
    return answer["spiffe_id"] as string;
  } finally {
    client.close();
  }
}

/** The certificate with that fingerprint among those that the server shows; nothing is sent on this connection. */
function pinnedCa(address: string, fingerprint: string): Promise<X509Certificate> {
  const colon = address.lastIndexOf(":");
  const host = address.slice(0, colon).replace(/^\[|\]$/g, "");
  return new Promise((resolve, reject) => {
    // Not verified: it only tells which certificate the fingerprint means.
    const socket = connect({ host, port: Number(address.slice(colon + 1)), rejectUnauthorized: false, ALPNProtocols: ["h2"] });
    const away = (): void => {
      socket.destroy();
      reject(new MeshError(`${address} does not answer as Signer's enrolment would.`, "unreachable"));
    };
    socket.setTimeout(CALL_MS, away);
    socket.once("error", away);
    socket.once("secureConnect", () => {
      const seen = new Set<string>();
      let shown: DetailedPeerCertificate | undefined = socket.getPeerCertificate(true);
      socket.destroy();
      while (shown?.raw !== undefined && !seen.has(shown.fingerprint256)) {
        seen.add(shown.fingerprint256);
        if (createHash("sha256").update(shown.raw).digest("hex") === fingerprint) {
          resolve(new X509Certificate(shown.raw));
          return;
        }
        shown = shown.issuerCertificate;
      }
      reject(new MeshError(
        `The token is of another installation than the one at ${address}; nothing was sent.`, "wrong-installation"));
    });
  });
}
