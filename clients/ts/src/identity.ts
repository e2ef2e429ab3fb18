import { Channel } from "./channel.js";
import { MeshError } from "./errors.js";
import { bundleOf, newKeyAndCsr, parseSpiffe, readFolder, writeFolder, type Bundle } from "./folder.js";

export interface IdentityOptions {
  /** Folder of cert.pem, key.pem and ca.pem. */
  folder: string;
  /** Signer's address, host:port. */
  signer: string;
  /** `<tenant>/<service>`; needed when the folder is still empty. */
  source?: string;
  /** May act as the service: the certificate is had through it. Without one the service renews itself. */
  principal?: Identity;
  /** Life of a service's certificate; the longest if it is left out. */
  ttlSeconds?: number;
}

/** A certificate that is renewed before it ends: of a principal, or of a service. */
export class Identity {
  private held: Bundle | undefined;
  private count = 0;
  private timer: NodeJS.Timeout | undefined;
  private renewing: Promise<void> | undefined;
  private failures = 0;
  private closed = false;

  private constructor(private readonly options: IdentityOptions) {}

  /** Reads the folder, or has a certificate made for it through the principal, and keeps it from ending until `close`. */
  static async open(options: IdentityOptions): Promise<Identity> {
    const identity = new Identity(options);
    try {
      identity.adopt(readFolder(options.folder));
    } catch (error) {
      if (options.principal === undefined || options.source === undefined) throw error;
      await identity.renew();
    }
    if (identity.bundle.notAfterMs <= Date.now()) await identity.renew();
    identity.plan();
    return identity;
  }

  get bundle(): Bundle {
    if (this.held === undefined) throw new MeshError("There is no certificate yet.", "bad-certificate");
    return this.held;
  }

  /** Grows with every certificate; a connection that was opened with an older one is left in time. */
  get renewals(): number {
    return this.count;
  }

  get spiffeId(): string {
    return this.bundle.spiffeId;
  }

  get ended(): boolean {
    return this.bundle.notAfterMs <= Date.now();
  }

  close(): void {
    this.closed = true;
    clearTimeout(this.timer);
  }

  /**
   * Has another certificate made now, with a new key. A service's certificate that has ended is had again through the
   * principal; one that renews itself cannot be.
   */
  renew(): Promise<void> {
    this.renewing ??= this.certify().finally(() => { this.renewing = undefined; });
    return this.renewing;
  }

  private async certify(): Promise<void> {
    const { key, csr } = newKeyAndCsr();
    const caller = this.options.principal ?? this;
    const wanted = this.held?.spiffeId ?? this.idOfSource(caller);
    const { tenant, kind, name } = parseSpiffe(wanted);
    const channel = new Channel(caller, this.options.signer, "signer");
    try {
      const issued = kind === "principal"
        ? await channel.call("Signer/IssueCertificate", ["IssueCertificateRequest", "IssueCertificateResponse"],
            { csr_pem: csr, spiffe_id: wanted })
        : await channel.call("Signer/AssumeService", ["AssumeServiceRequest", "IssueCertificateResponse"],
            { source: `${tenant}/${name}`, csr_pem: csr, ttl_seconds: this.options.ttlSeconds ?? 0 });
      this.adopt(keep(this.options.folder, issued["certificate_pem"], key, issued["ca_pem"], wanted));
    } finally {
      channel.close();
    }
  }

  private idOfSource(caller: Identity): string {
    const [tenant, service] = (this.options.source ?? "").split("/");
    return `spiffe://${parseSpiffe(caller.spiffeId).trustDomain}/tenant/${tenant}/service/${service}`;
  }

  private adopt(bundle: Bundle): void {
    this.held = bundle;
    this.count += 1;
  }

  /** When two thirds of the life are over, or a little earlier: what was started together must not renew together. */
  private dueMs(): number {
    const { issuedMs, notAfterMs, leaf } = this.bundle;
    const spread = Number.parseInt(leaf.serialNumber.slice(0, 2), 16) / 255;
    return issuedMs + (notAfterMs - issuedMs) * (2 / 3 - spread / 10);
  }

  private plan(): void {
    if (this.closed) return;
    const pause = this.failures > 0
      ? Math.min(60_000, 500 * 2 ** Math.min(this.failures - 1, 7)) * (0.5 + Math.random() / 2)
      : Math.min(60_000, Math.max(50, this.dueMs() - Date.now()));
    this.timer = setTimeout(() => void this.look().finally(() => this.plan()), pause);
    this.timer.unref();
  }

  private async look(): Promise<void> {
    try {
      const found = readFolder(this.options.folder);
      // Another process that shares the folder may have renewed it.
      if (found.leaf.fingerprint256 !== this.bundle.leaf.fingerprint256) this.adopt(found);
      if (Date.now() >= this.dueMs()) await this.renew();
      this.failures = 0;
    } catch {
      this.failures += 1;
    }
  }
}

/** Writes a certificate that came back, once it is known to be for our key and for the identity that was wanted. */
export function keep(folder: string, certificate: string, key: Buffer, ca: string | Buffer, wanted: string): Bundle {
  const bundle = bundleOf(Buffer.from(certificate), key, Buffer.from(ca));
  if (bundle.spiffeId !== wanted) throw new MeshError("The certificate that came back is not ours.", "bad-certificate");
  writeFolder(folder, bundle);
  return bundle;
}
