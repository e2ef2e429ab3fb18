import { Client, Metadata, credentials, type ChannelCredentials, type ChannelOptions, type ClientDuplexStream } from "@grpc/grpc-js";
import { meshError } from "./errors.js";
import type { Identity } from "./identity.js";
import { parseSpiffe } from "./folder.js";
import { decode, encode, type Plain } from "./wire.js";

export const CALL_MS = 10_000;
const RETIRE_MS = 120_000;
const MAX_MESSAGE_BYTES = 4 << 20;

export type Stream = ClientDuplexStream<Plain, Plain>;

/** Options of every connection. `name` is checked instead of the address: it says which service answers, not where. */
export function channelOptions(name: string): ChannelOptions {
  return {
    "grpc.ssl_target_name_override": name,
    "grpc.default_authority": name,
    "grpc.enable_http_proxy": 0,
    // Only the producer may repeat a command, because only it can sign again.
    "grpc.enable_retries": 0,
    "grpc.service_config_disable_resolution": 1,
    "grpc.keepalive_time_ms": 20_000,
    "grpc.keepalive_timeout_ms": 10_000,
    "grpc.keepalive_permit_without_calls": 1,
    "grpc.initial_reconnect_backoff_ms": 100,
    "grpc.max_reconnect_backoff_ms": 1000,
    "grpc.max_receive_message_length": MAX_MESSAGE_BYTES,
    "grpc.max_send_message_length": MAX_MESSAGE_BYTES,
  };
}

/** One unary call. */
export function unary(
  client: Client, method: string, types: [string, string], request: Plain, metadata: Metadata, withinMs: number,
): Promise<Plain> {
  return new Promise((resolve, reject) => {
    client.makeUnaryRequest(
      `/snavio.v1.${method}`,
      (message: Plain) => encode(types[0], message),
      (bytes: Buffer) => decode(types[1], bytes),
      request, metadata, { deadline: Date.now() + withinMs },
      (error, answer) => (error !== null || answer === undefined ? reject(meshError(error)) : resolve(answer)),
    );
  });
}

/** A connection to one service of the mesh, opened anew after every renewal of the certificate. */
export class Channel {
  private current: Client | undefined;
  private renewals = -1;
  private readonly retiring = new Set<NodeJS.Timeout>();

  constructor(private readonly identity: Identity, private readonly address: string, private readonly service: string) {}

  /** True if the certificate was renewed since this connection was opened. */
  get stale(): boolean {
    return this.renewals !== this.identity.renewals;
  }

  call(method: string, types: [string, string], request: Plain, metadata = new Metadata(), withinMs = CALL_MS): Promise<Plain> {
    return unary(this.client(), method, types, request, metadata, withinMs);
  }

  stream(method: string, types: [string, string], metadata = new Metadata()): Stream {
    return this.client().makeBidiStreamRequest(
      `/snavio.v1.${method}`,
      (message: Plain) => encode(types[0], message),
      (bytes: Buffer) => decode(types[1], bytes),
      metadata,
    );
  }

  close(): void {
    this.current?.close();
    this.current = undefined;
    for (const timer of this.retiring) clearTimeout(timer);
  }

  private client(): Client {
    if (this.current !== undefined && !this.stale) return this.current;
    const old = this.current;
    if (old !== undefined) {
      // Calls that run on it may go on for a while.
      const timer = setTimeout(() => { old.close(); this.retiring.delete(timer); }, RETIRE_MS);
      timer.unref();
      this.retiring.add(timer);
    }
    const held = this.identity.bundle;
    const trust: ChannelCredentials = credentials.createSsl(held.ca, held.key, held.certificate);
    const name = `${this.service}.mesh.${parseSpiffe(held.spiffeId).trustDomain}`;
    this.renewals = this.identity.renewals;
    this.current = new Client(this.address, trust, channelOptions(name));
    return this.current;
  }
}
