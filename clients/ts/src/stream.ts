import type { Channel, Stream } from "./channel.js";
import { MeshError, meshError } from "./errors.js";
import { Verdict, known } from "./verdict.js";
import type { Plain } from "./wire.js";

/** What Shield says about one command in one attempt. */
export interface Answer {
  verdict: Verdict;
  retryAfterMs: number;
  throttleUntilNs: bigint;
  detail: string;
  shares?: { source: number; competing: number; volume: number };
}

export const answer = (verdict: Verdict, detail = ""): Answer =>
  ({ verdict, retryAfterMs: 0, throttleUntilNs: 0n, detail });

/** One batch on a stream; each command is answered once. */
class Pending {
  readonly answers: (Answer | undefined)[];
  readonly done: Promise<Answer[]>;
  open: number;
  private settle!: (answers: Answer[]) => void;

  constructor(count: number) {
    this.answers = new Array<Answer | undefined>(count).fill(undefined);
    this.open = count;
    this.done = new Promise((resolve) => { this.settle = resolve; });
  }

  note(number: number, told: Answer): void {
    if (number >= this.answers.length || this.answers[number] !== undefined || told.verdict === Verdict.Undecided) return;
    this.answers[number] = told;
    this.open -= 1;
    if (this.open === 0) this.settle(this.answers as Answer[]);
  }

  finish(told: Answer): void {
    for (let number = 0; number < this.answers.length; number += 1) this.note(number, told);
  }
}

const HELLO_MS = 10_000;

/** One SubmitStream, from its Hello to its end. */
export class SubmitStream {
  usable = true;
  audience: string;
  readonly limits: Plain;
  private seq = 0;
  private readonly pending = new Map<string, Pending>();
  private readonly waiting: (() => void)[] = [];
  private readonly over: Promise<void>;
  private finished = false;

  private constructor(private readonly rpc: Stream, hello: Plain) {
    this.audience = hello["audience"];
    this.limits = hello["limits"];
    rpc.on("data", (told: Plain) => this.heard(told));
    this.over = new Promise((resolve) => {
      const end = (): void => { this.end(); resolve(); };
      rpc.on("error", end);
      rpc.on("end", end);
    });
  }

  static open(channel: Channel): Promise<SubmitStream> {
    return new Promise((resolve, reject) => {
      const rpc = channel.stream("Shield/SubmitStream", ["Submission", "Verdicts"]);
      const timer = setTimeout(() => rpc.cancel(), HELLO_MS);
      const failed = (error: unknown): void => { clearTimeout(timer); reject(meshError(error)); };
      rpc.once("error", failed);
      rpc.once("data", (first: Plain) => {
        clearTimeout(timer);
        const hello = first["hello"] as Plain | null;
        if (hello === null || hello["audience"] === "") {
          rpc.cancel();
          reject(new MeshError("Shield opened the stream without an audience.", "no-hello"));
          return;
        }
        resolve(new SubmitStream(rpc, hello));
        rpc.off("error", failed);
      });
      rpc.write({ hello: { wire_version: 1 } });
    });
  }

  /** Sends one batch. Commands that were never written are certainly not delivered. */
  async submit(commands: Buffer[], budgetMs: number, untilMs: number): Promise<Answer[]> {
    const unsent = (why: string): Answer[] => commands.map(() => answer(Verdict.DeliveryFailure, why));
    while (this.pending.size >= Math.max(1, Number(this.limits["max_batches_in_flight"])) && this.usable) {
      if (!(await inTime(new Promise<void>((resolve) => this.waiting.push(resolve)), untilMs))) {
        return unsent("no room on the stream in time");
      }
    }
    if (!this.usable) return unsent("the stream ended before this was sent");
    this.seq += 1;
    const batch = new Pending(commands.length);
    this.pending.set(String(this.seq), batch);
    this.rpc.write({ header: { batch_seq: this.seq, budget_ms: budgetMs }, command: commands });
    await inTime(batch.done, untilMs);
    return batch.answers.map((told) => told ?? answer(Verdict.OutcomeUnknown, "no answer in time"));
  }

  /** Sends nothing more; what was sent is still answered. */
  leave(): void {
    if (!this.usable) return;
    this.usable = false;
    this.rpc.end();
    this.wake();
  }

  async close(withinMs: number): Promise<void> {
    this.leave();
    if (!(await inTime(this.over, Date.now() + withinMs))) this.rpc.cancel();
  }

  private heard(told: Plain): void {
    if ((told["hello"] as Plain | null)?.["going_away"]) {
      this.leave();
      return;
    }
    const batch = this.pending.get(String(told["batch_seq"]));
    if (batch === undefined) return;
    const codes = told["codes"] as Buffer;
    const refusals = told["refusal"] as Plain[];
    const whole = batch.open === batch.answers.length;
    const byIndex = new Map(refusals.map((one) => [Number(one["index"]), answerOf(one)]));
    // A cause that hit many commands is explained once, for the first of them.
    const explained = new Map<Verdict, Answer>();
    codes.forEach((code, place) => {
      const number = Number(told["first"]) + place;
      const refusal = byIndex.get(number);
      if (refusal !== undefined) explained.set(refusal.verdict, refusal);
      batch.note(number, explained.get(known(code)) ?? answer(known(code)));
    });
    if (told["final"] && batch.open > 0) {
      // A frame that was refused before it was parsed leaves nothing in doubt.
      const refused = whole && codes.length === 0 ? refusals[0] : undefined;
      batch.finish(refused === undefined ? answer(Verdict.OutcomeUnknown, "the answer left it out") : answerOf(refused));
    }
    if (batch.open === 0) {
      this.pending.delete(String(told["batch_seq"]));
      this.wake();
    }
  }

  private end(): void {
    if (this.finished) return;
    this.finished = true;
    this.usable = false;
    for (const batch of this.pending.values()) {
      batch.finish(answer(Verdict.OutcomeUnknown, "the stream ended without an answer"));
    }
    this.pending.clear();
    this.wake();
  }

  private wake(): void {
    for (const resolve of this.waiting.splice(0)) resolve();
  }
}

function answerOf(refusal: Plain): Answer {
  const verdict = known(Number(refusal["reason"]));
  const told: Answer = {
    verdict, retryAfterMs: Number(refusal["retry_after_ms"]),
    throttleUntilNs: BigInt(refusal["throttle_until_unix_ns"]), detail: refusal["detail"],
  };
  if (verdict === Verdict.FairnessViolation) {
    told.shares = {
      source: refusal["source_share"], competing: refusal["competing_share"], volume: refusal["dispatch_volume"],
    };
  }
  return told;
}

/** True if the promise was settled before that time. */
export async function inTime(promise: Promise<unknown>, untilMs: number): Promise<boolean> {
  let timer: NodeJS.Timeout | undefined;
  const late = new Promise<boolean>((resolve) => {
    timer = setTimeout(() => resolve(false), Math.max(0, untilMs - Date.now()));
  });
  try {
    return await Promise.race([promise.then(() => true), late]);
  } finally {
    clearTimeout(timer);
  }
}
