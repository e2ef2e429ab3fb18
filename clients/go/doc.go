// Package snavio is a client of a Snavio mesh: it enrols, acts as a service, signs and sends commands, receives
// them, and follows a tenant's signed events.
//
// It does what docs/protocol.md, docs/consumer.md and docs/stream.md say, and never more than a plain reader of those pages would.
//
//	Identity   a certificate folder, kept from ending
//	Producer   signs commands and sends them on one stream to Shield
//	Consumer   receives a topic's messages under leases, and verifies their hashes
//	Events     follows a tenant's signed events, and verifies their chain
package snavio
