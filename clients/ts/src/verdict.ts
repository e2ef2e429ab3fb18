/** What became of one command; docs/protocol.md tells what each means. */
export enum Verdict {
  Undecided = 0,
  Delivered = 1,
  Duplicate = 2,
  Malformed = 16,
  Oversized = 17,
  SourcePresent = 18,
  InvalidId = 19,
  InvalidTimestamp = 20,
  InvalidType = 21,
  InvalidKeyVersion = 22,
  InvalidAudience = 23,
  InvalidHmac = 24,
  InvalidTarget = 25,
  InvalidName = 26,
  InvalidContentType = 27,
  InvalidTraceparent = 28,
  Suspended = 32,
  UnknownKeyVersion = 33,
  KeyExpired = 34,
  KeyRevoked = 35,
  WrongAudience = 36,
  TimestampOutsideWindow = 37,
  HmacMismatch = 38,
  Replayed = 39,
  CertificateExpired = 40,
  CertificateRevoked = 41,
  RateLimitExceeded = 64,
  AclDeny = 65,
  RouteMissing = 66,
  DeliveryFailure = 67,
  FairnessViolation = 68,
  OutcomeUnknown = 69,
  Saturated = 70,
  Conflict = 71,
  Frozen = 72,
}

const RETRYABLE = new Set([
  Verdict.UnknownKeyVersion, Verdict.KeyExpired, Verdict.WrongAudience, Verdict.RateLimitExceeded,
  Verdict.DeliveryFailure, Verdict.FairnessViolation, Verdict.OutcomeUnknown, Verdict.Saturated,
]);

/** The command is durable in its target's queue. */
export const good = (verdict: Verdict): boolean => verdict === Verdict.Delivered || verdict === Verdict.Duplicate;

/** The same command, signed again, may pass without anybody changing a rule. */
export const retryable = (verdict: Verdict): boolean => RETRYABLE.has(verdict);

/** A code that this program does not know must never pass for a delivery. */
export const known = (code: number): Verdict => (code in Verdict ? code : Verdict.OutcomeUnknown);

/** The stable name, such as `acl-deny`. */
export const reasonOf = (verdict: Verdict): string =>
  Verdict[verdict]!.replace(/(?<!^)([A-Z])/g, "-$1").toLowerCase();
