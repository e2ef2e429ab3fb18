import { Channel } from "./channel.js";
import { newId, sign, timestamp } from "./command.js";
import { MeshError, meshError } from "./errors.js";
import type { Identity } from "./identity.js";
import { Keyring } from "./keys.js";
import { SubmitStream, answer, type Answer } from "./stream.js";
import { Verdict, good, known, reasonOf, retryable } from "./verdict.js";
import type { Plain } from "./wire.js";

/** One command to send. */
export interface Message {
  target: string;
  name: string;
  payload: Uint8Array;
  contentType?: string;
  traceparent?: string;
  /** Kept over all attempts; a new one if it is left out. */
  id?: string;
}

/** What became of one command. */
export interface Outcome extends Answer {
  id: string;
  attempts: number;
}

export interface ProducerOptions {
  shield: string;
  signer: string;
  identity: Identity;
  /** For a send with all its attempts; 10 s if it is left out. */
  timeoutMs?: number;
  /** Bounds the attempts further. */
  maxAttempts?: number;
}

const ATTEMPT_MS = 6000;
const BUDGET_MS = 5000;
const KEY_NEWS_MS = 10_000;
const SHIELD_BEHIND_MS = 250;
// Attempts after which another one because of something learned costs a pause, as any other does.
const MAX_LESSONS = 4;
const FRAME_SLACK = 64;

/** Keys, audience and certificate of an attempt; once one has changed, another attempt makes sense at once. */
interface Basis {
  stream: SubmitStream | undefined;
  audience: string;
  keys: number;
  renewals: number;
}

/** Signs commands and sends them on one stream to Shield. */
export class Producer {
  private readonly shield: Channel;
  private readonly signer: Channel;
  private readonly keys: Keyring;
  private readonly budget = new RetryBudget();
  private current: SubmitStream | undefined;
  private opening: Promise<SubmitStream> | undefined;

  private constructor(private readonly options: ProducerOptions) {
    this.shield = new Channel(options.identity, options.shield, "shield");
    this.signer = new Channel(options.identity, options.signer, "signer");
    this.keys = new Keyring(this.signer);
  }

  /** Fetches the keys and greets Shield. */
  static async open(options: ProducerOptions): Promise<Producer> {
    const producer = new Producer(options);
    try {
      await producer.keys.fetch();
      await producer.stream(Date.now() + (options.timeoutMs ?? 10_000));
    } catch (error) {
      await producer.close();
      throw error;
    }
    producer.keys.follow();
    return producer;
  }

  /** `<tenant>/<service>`, as Signer knows the caller. */
  get source(): string {
    return this.keys.source;
  }

  /** Waits for answers under way, at most two seconds. */
  async close(): Promise<void> {
    this.keys.close();
    await this.current?.close(2000);
    this.current = undefined;
    this.shield.close();
    this.signer.close();
  }

  async send(message: Message): Promise<Outcome> {
    return (await this.sendBatch([message]))[0]!;
  }

  /**
   * Sends many at once; outcomes come in the same order. What another attempt can change is tried again under the same
   * id with a fresh signature, until the time is over.
   */
  async sendBatch(messages: Message[]): Promise<Outcome[]> {
    const untilMs = Date.now() + (this.options.timeoutMs ?? 10_000);
    const outcomes: Outcome[] = messages.map(({ id }) =>
      ({ ...answer(Verdict.Undecided), id: id ?? newId(), attempts: 0 }));
    const doubt = new Set<number>();
    let open = messages.map((_, place) => place);
    this.budget.deposit(messages.length);
    while (open.length > 0) {
      const basis = await this.attempt(messages, outcomes, open, untilMs);
      const { again, pauseMs } = await this.sortOut(basis, outcomes, doubt, open, untilMs);
      if (again.length === 0) break;
      if (pauseMs > 0) await new Promise((resolve) => setTimeout(resolve, pauseMs));
      open = again;
    }
    for (const place of doubt) {
      const outcome = outcomes[place]!;
      if (!good(outcome.verdict) && outcome.verdict !== Verdict.OutcomeUnknown) {
        // The refusal speaks of the last attempt only; an earlier one may have arrived.
        outcome.detail = `${reasonOf(outcome.verdict)} after an attempt without an answer`;
        outcome.verdict = Verdict.OutcomeUnknown;
      }
    }
    return outcomes;
  }

  /** Signs a message for this moment, with the key and the audience in use; for `submit`. */
  async signNow(message: Message): Promise<Buffer> {
    const stream = await this.stream(Date.now() + ATTEMPT_MS);
    return this.signed(message, message.id ?? newId(), stream.audience, BigInt(Date.now()) * 1_000_000n);
  }

  /** Sends one serialised command by the unary call, once and as it is. */
  async submit(command: Buffer): Promise<Answer> {
    const told: Plain = await this.shield.call("Shield/Submit", ["SubmitRequest", "Verdicts"], { command });
    const detail = String(told["refusal"][0]?.["detail"] ?? "");
    const code = (told["codes"] as Buffer)[0] ?? Number(told["refusal"][0]?.["reason"] ?? Verdict.OutcomeUnknown);
    return answer(known(code), detail);
  }

  private signed(message: Message, id: string, audience: string, nowNs: bigint): Buffer {
    const key = this.keys.signing(nowNs);
    return sign(key.secret, {
      ...message, id, timestamp: timestamp(nowNs), keyVersion: key.version, audience,
    });
  }

  private async attempt(messages: Message[], outcomes: Outcome[], open: number[], untilMs: number): Promise<Basis> {
    const basis: Basis = { stream: undefined, audience: "", keys: this.keys.generation, renewals: this.options.identity.renewals };
    const record = (place: number, told: Answer): void => {
      const { id, attempts } = outcomes[place]!;
      outcomes[place] = { ...told, id, attempts: attempts + 1 };
    };
    try {
      basis.stream = await this.stream(untilMs);
    } catch (error) {
      const refused = meshError(error);
      const verdict = refused.reason === "certificate-expired" ? Verdict.CertificateExpired : Verdict.DeliveryFailure;
      open.forEach((place) => record(place, answer(verdict, refused.message)));
      return basis;
    }
    const { stream } = basis;
    basis.audience = stream.audience;
    const attemptUntilMs = Math.min(untilMs, Date.now() + ATTEMPT_MS);
    const most = Number(stream.limits["max_batch_commands"]);
    const limit = Number(stream.limits["max_batch_bytes"]) - FRAME_SLACK;
    const nowNs = BigInt(Date.now()) * 1_000_000n;
    const batches: { places: number[]; commands: Buffer[]; size: number }[] = [];
    for (const place of open) {
      let command: Buffer;
      try {
        command = this.signed(messages[place]!, outcomes[place]!.id, basis.audience, nowNs);
      } catch (error) {
        record(place, answer(Verdict.KeyExpired, meshError(error).message));
        continue;
      }
      let batch = batches.at(-1);
      if (batch === undefined || batch.commands.length === most || batch.size + command.length + 5 > limit) {
        batches.push(batch = { places: [], commands: [], size: 0 });
      }
      batch.places.push(place);
      batch.commands.push(command);
      batch.size += command.length + 5;
    }
    await Promise.all(batches.map(async ({ places, commands }) => {
      const answers = await stream.submit(commands, BUDGET_MS, attemptUntilMs);
      answers.forEach((told, number) => record(places[number]!, told));
    }));
    return basis;
  }

  private async sortOut(
    basis: Basis, outcomes: Outcome[], doubt: Set<number>, open: number[], untilMs: number,
  ): Promise<{ again: number[]; pauseMs: number }> {
    const learned = new Map<Verdict, boolean>();
    const again: number[] = [];
    let pauseMs = 0;
    for (const place of open) {
      const { verdict, attempts, detail, retryAfterMs } = outcomes[place]!;
      if (verdict === Verdict.OutcomeUnknown) doubt.add(place);
      if (good(verdict) || attempts >= (this.options.maxAttempts ?? Infinity) || Date.now() >= untilMs) continue;
      if (!learned.has(verdict)) learned.set(verdict, await this.learn(verdict, basis, detail));
      if (learned.get(verdict) && attempts <= MAX_LESSONS) {
        again.push(place);
        continue;
      }
      if (!retryable(verdict)) continue;
      const ahead = verdict === Verdict.UnknownKeyVersion && this.keys.newsWithin(KEY_NEWS_MS);
      // Shield will have caught up, and it refuses all at once: no token for that.
      if (!ahead && !this.budget.withdraw()) continue;
      const hint = ahead ? Math.max(retryAfterMs, SHIELD_BEHIND_MS * 2 ** Math.min(attempts - 1, 5)) : retryAfterMs;
      const wait = hint + Math.random() * Math.min(2000, 50 * 2 ** Math.min(attempts - 1, 10));
      if (Date.now() + wait >= untilMs) continue;
      pauseMs = Math.max(pauseMs, wait);
      again.push(place);
    }
    return { again, pauseMs };
  }

  /** True if signatures or the connection differ from now on because of this refusal. */
  private async learn(verdict: Verdict, basis: Basis, detail: string): Promise<boolean> {
    if (verdict === Verdict.WrongAudience && basis.stream !== undefined) {
      if (basis.stream.audience === basis.audience && detail !== "") basis.stream.audience = detail;
      return basis.stream.audience !== basis.audience;
    }
    if ([Verdict.UnknownKeyVersion, Verdict.KeyExpired, Verdict.KeyRevoked].includes(verdict)) {
      return this.keys.refused(basis.keys);
    }
    if (verdict === Verdict.CertificateExpired) {
      // Shield's verdict is the better answer if this fails.
      if (this.options.identity.renewals === basis.renewals) await this.options.identity.renew().catch(() => undefined);
      return this.options.identity.renewals !== basis.renewals;
    }
    return false;
  }

  /** The stream to send on: another when the last one ended, is about to, or began under an older certificate. */
  private async stream(untilMs: number): Promise<SubmitStream> {
    if (this.current?.usable === true && !this.shield.stale) return this.current;
    this.current?.leave();
    this.opening ??= this.openStream(untilMs).finally(() => { this.opening = undefined; });
    return this.opening;
  }

  private async openStream(untilMs: number): Promise<SubmitStream> {
    for (let attempt = 0; ; attempt += 1) {
      try {
        this.current = await SubmitStream.open(this.shield);
        return this.current;
      } catch (error) {
        const refused = error instanceof MeshError ? error : meshError(error);
        // TLS refuses an ended certificate without saying so: the connection breaks, and that is all.
        if (this.options.identity.ended) {
          await this.options.identity.renew();
          continue;
        }
        const wait = Math.max(refused.retryAfterMs, 50 * 2 ** Math.min(attempt, 5)) + 50 * Math.random();
        if (!refused.retryable || Date.now() + wait >= untilMs) throw refused;
        await new Promise((resolve) => setTimeout(resolve, wait));
      }
    }
  }
}

/** Keeps retries near a tenth of the traffic: a mesh that refuses must not be hammered by those it refused. */
class RetryBudget {
  private tokens = 100;
  private atMs = Date.now();

  deposit(sent: number): void {
    this.tokens = Math.min(1000, this.tokens + sent * 0.1);
  }

  withdraw(): boolean {
    const now = Date.now();
    this.tokens = Math.min(1000, this.tokens + ((now - this.atMs) / 1000) * 10);
    this.atMs = now;
    if (this.tokens < 1) return false;
    this.tokens -= 1;
    return true;
  }
}
