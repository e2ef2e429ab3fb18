/**
 * A client of a Snavio mesh: it enrols, acts as a service, signs and sends commands, receives them, and follows a tenant's signed events.
 *
 * It does what docs/protocol.md, docs/consumer.md and docs/stream.md say, and never more than a plain reader of those pages would.
 */
export { COMMAND_TYPE, newId, sign, signedText, timestamp, type Fields } from "./command.js";
export { Consumer, Settlement, type ConsumerOptions, type NackOptions } from "./consumer.js";
export { enrol, type Enrolment } from "./enrol.js";
export { Chain, EnvelopeError, publicKey, type Envelope, type Fault, type Place, type Position, type State } from "./envelopes.js";
export { MeshError } from "./errors.js";
export { Events, type EventsOptions, type Item } from "./events.js";
export { Integrity, hashChain, payloadHash, readResponse, type Delivery } from "./hashes.js";
export { Identity, type IdentityOptions } from "./identity.js";
export { Producer, type Message, type Outcome, type ProducerOptions } from "./producer.js";
export { Verdict, good, reasonOf, retryable } from "./verdict.js";
