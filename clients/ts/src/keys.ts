import type { Channel } from "./channel.js";
import { MeshError } from "./errors.js";
import type { Plain } from "./wire.js";

/** One version of a source's HMAC key. */
export interface KeyVersion {
  version: string;
  secret: Buffer;
  notBeforeNs: bigint;
  notAfterNs: bigint;
  primaryFromNs: bigint;
  revoked: boolean;
}

const AT_MOST_EVERY_MS = 1000;

/** The newest usable version whose time as primary has come; Signer's own choice where the clock is behind. */
export function chooseKey(versions: KeyVersion[], primary: string, nowNs: bigint): KeyVersion | undefined {
  const usable = versions.filter((one) => !one.revoked && one.notBeforeNs <= nowNs &&
    (one.notAfterNs === 0n || one.notAfterNs > nowNs) && one.primaryFromNs <= nowNs);
  return usable.reduce<KeyVersion | undefined>(
    (best, one) => (best === undefined || one.primaryFromNs > best.primaryFromNs ? one : best), undefined,
  ) ?? versions.find((one) => one.version === primary && !one.revoked);
}

/** The caller's key set as Signer told it last. */
export class Keyring {
  source = "";
  generation = 0;
  private versions: KeyVersion[] = [];
  private primary = "";
  private told = "";
  private changedMs = 0;
  private pressedMs = 0;
  private pollMs = 1000;
  private asking: Promise<void> | undefined;
  private timer: NodeJS.Timeout | undefined;

  constructor(private readonly channel: Channel) {}

  fetch(): Promise<void> {
    this.asking ??= this.ask().finally(() => { this.asking = undefined; });
    return this.asking;
  }

  /** Asks Signer because a key of that generation was refused; true if there is something newer now. */
  async refused(generation: number): Promise<boolean> {
    if (this.generation === generation && (this.asking !== undefined || Date.now() - this.pressedMs >= AT_MOST_EVERY_MS)) {
      this.pressedMs = Date.now();
      // The keys that are there go on; Shield is the judge of them.
      await this.fetch().catch(() => undefined);
    }
    return this.generation !== generation;
  }

  /** True if the keys changed so recently that Shield may not have them yet. */
  newsWithin(ms: number): boolean {
    return Date.now() - this.changedMs < ms;
  }

  signing(nowNs: bigint): KeyVersion {
    const key = chooseKey(this.versions, this.primary, nowNs);
    if (key === undefined) throw new MeshError(`${this.source} has no key to sign with.`, "no-signing-key");
    return key;
  }

  follow(): void {
    // Only ever sooner: a fleet that was started in one minute must not ask in one minute for ever.
    this.timer = setTimeout(() => {
      void this.fetch().catch(() => { this.pollMs = 2000; }).finally(() => this.follow());
    }, this.pollMs * (0.9 + 0.1 * Math.random()));
    this.timer.unref();
  }

  close(): void {
    clearTimeout(this.timer);
  }

  private async ask(): Promise<void> {
    const config = await this.channel.call("Signer/TenantConfig", ["TenantConfigRequest", "TenantConfigResponse"], {});
    const set: Plain = config["keyset"] ?? { version: [], source: "" };
    this.versions = (set["deleted"] ? [] : (set["version"] as Plain[])).map((one) => ({
      version: one["version"], secret: one["secret"], notBeforeNs: BigInt(one["not_before_unix_ns"]),
      notAfterNs: BigInt(one["not_after_unix_ns"]), primaryFromNs: BigInt(one["primary_from_unix_ns"]),
      revoked: one["revoked"],
    }));
    this.primary = config["primary"];
    this.source = set["source"];
    this.pollMs = Math.min(86_400_000, Math.max(1000, 1000 * Number(config["poll_after_seconds"])));
    const told = JSON.stringify([this.primary, (set["version"] as Plain[]).map((one) => [
      one["version"], one["revoked"], one["not_after_unix_ns"], one["primary_from_unix_ns"]])]);
    if (told !== this.told) {
      this.told = told;
      this.generation += 1;
      this.changedMs = Date.now();
    }
  }
}
