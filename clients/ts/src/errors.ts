import { status as codes, type Metadata, type ServiceError } from "@grpc/grpc-js";

/** The refusal of a whole call. Refused commands are no errors but outcomes. */
export class MeshError extends Error {
  constructor(
    message: string,
    /** A stable word such as `certificate-expired`; empty where gRPC itself failed. */
    readonly reason = "",
    /** gRPC's code. */
    readonly status: number = codes.FAILED_PRECONDITION,
    /** The mesh's hint; 0 where it gave none. */
    readonly retryAfterMs = 0,
    /** The mailbox's code, such as `E_SATURATED`. */
    readonly taxonomy = "",
    /** Where the mailbox says that Signer is. */
    readonly signer = "",
  ) {
    super(message);
    this.name = "MeshError";
  }

  /** True if the same call may pass later without anybody changing a rule. */
  get retryable(): boolean {
    // RESOURCE_EXHAUSTED without a reason is gRPC's refusal of a message that is too large, which stays too large.
    return this.status === codes.UNAVAILABLE || (this.status === codes.RESOURCE_EXHAUSTED && this.reason !== "");
  }
}

/** The MeshError of what gRPC raised. */
export function meshError(error: unknown): MeshError {
  if (error instanceof MeshError) return error;
  const raised = error as Partial<ServiceError>;
  if (typeof raised.code !== "number") return new MeshError(String(error), "internal", codes.INTERNAL);
  const first = (key: string): string => String((raised.metadata as Metadata | undefined)?.get(key)[0] ?? "");
  const hint = /^[0-9]{1,9}$/.test(first("snavio-retry-after-ms")) ? Number(first("snavio-retry-after-ms")) : 0;
  return new MeshError(
    raised.details ?? "", first("snavio-reason"), raised.code, hint, first("snavio-code"), first("snavio-signer"),
  );
}
