// Package snavio is a client of a Snavio mesh: it enrols, acts as a service, signs and sends commands, and receives
// them.
//
// It does what docs/protocol.md and docs/consumer.md say, and never more than a plain reader of those pages would.
//
//	Identity   a certificate folder, kept from ending
//	Producer   signs commands and sends them on one stream to Shield
//	Consumer   receives a topic's messages under leases, and verifies their hashes
package snavio
