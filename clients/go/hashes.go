package snavio

import (
	"encoding/binary"
	"slices"
	"strings"
	"time"

	"github.com/zeebo/blake3"
	"google.golang.org/protobuf/proto"

	pb "snavio.local/go/snaviov1"
)

// Integrity is the outcome of comparing a message with its hashes.
type Integrity uint8

const (
	// Unverified: the mailbox sent no hashes.
	Unverified Integrity = iota
	// Verified: the message is as it was stored.
	Verified
	// NotAsStored: it changed on its way from the mailbox, which has it as it was.
	NotAsStored
	// NotAsSent: it changed before the mailbox stored it; every attempt would bring the same.
	NotAsSent
)

// attribute is a name and a value.
type attribute struct{ name, value string }

// PayloadHash is BLAKE3 of a payload.
func PayloadHash(payload []byte) [32]byte { return blake3.Sum256(payload) }

// HashChain is the chain value of a message: BLAKE3 over topic, time, idem_key, payload hash and attributes by name,
// each behind its length as eight bytes, little-endian.
func HashChain(topic string, storedUnixNs int64, source string, payloadHash [32]byte, m *pb.StoredCommand) [32]byte {
	idemKey := m.GetIdemKey()
	attributes := make([]attribute, 0, 6+len(m.GetAttr()))
	for _, one := range m.GetAttr() {
		attributes = append(attributes, attribute{one.GetName(), one.GetValue()})
	}
	add := func(name, value string) {
		if value != "" {
			attributes = append(attributes, attribute{name, value})
		}
	}
	if m.GetName() != "" {
		idemKey = source + "#" + m.GetId()
		add("snavio.timestamp", m.GetTimestamp())
	}
	add("content-type", m.GetContentType())
	add("snavio.name", m.GetName())
	add("snavio.source", source)
	add("snavio.target", m.GetTarget())
	add("traceparent", m.GetTraceparent())
	slices.SortFunc(attributes, func(a, b attribute) int { return strings.Compare(a.name, b.name) })
	text := make([]byte, 0, 512)
	put := func(part string) {
		text = binary.LittleEndian.AppendUint64(text, uint64(len(part)))
		text = append(text, part...)
	}
	put(topic)
	put(Timestamp(time.Unix(0, storedUnixNs)))
	put(idemKey)
	put(string(payloadHash[:]))
	for _, one := range attributes {
		put(one.name)
		put(one.value)
	}
	return blake3.Sum256(text)
}

// Delivery is one received message under its lease.
type Delivery struct {
	MsgID   uint64
	Attempt uint32
	// ID of the command, the same in every attempt; of a message from Send its corr_id.
	ID                                                     string
	Source, Target, Name, ContentType, Traceparent, SentAt string
	Payload                                                []byte
	IdemKey                                                string
	Attributes                                             map[string]string
	StoredAt                                               time.Time
	Shard                                                  uint32
	Integrity                                              Integrity
	// PayloadHash and HashChain as computed here, from the message's bytes.
	PayloadHash, HashChain [32]byte
	bootEpoch              uint64
}

const messagesPerBatch = 1024

// ReadResponse reads the messages of a ReceiveResponse and compares each with its hashes.
func ReadResponse(response *pb.ReceiveResponse, topic string) ([]*Delivery, error) {
	var deliveries []*Delivery
	for _, batch := range response.GetBatch() {
		first := len(deliveries)
		number := uint64(batch.GetFirst())
		for _, run := range batch.GetRun() {
			for _, stored := range run.GetCommand() {
				delivery, err := readStored(stored, run.GetSource(), topic, batch)
				if err != nil || number >= messagesPerBatch {
					return nil, malformed()
				}
				delivery.MsgID = batch.GetBatchId()*messagesPerBatch + number
				delivery.bootEpoch = response.GetBootEpoch()
				deliveries = append(deliveries, delivery)
				number++
			}
		}
		if err := compare(deliveries[first:], batch); err != nil {
			return nil, err
		}
	}
	return deliveries, nil
}

func readStored(stored []byte, source, topic string, batch *pb.LeasedBatch) (*Delivery, error) {
	var m pb.StoredCommand
	if err := proto.Unmarshal(stored, &m); err != nil {
		return nil, err
	}
	payloadHash := PayloadHash(m.GetPayload())
	delivery := &Delivery{
		Attempt: batch.GetAttempt(), ID: m.GetId(), Source: source, Target: m.GetTarget(), Name: m.GetName(),
		ContentType: m.GetContentType(), Traceparent: m.GetTraceparent(), SentAt: m.GetTimestamp(),
		Payload: m.GetPayload(), IdemKey: m.GetIdemKey(), StoredAt: time.Unix(0, batch.GetStoredUnixNs()),
		Shard: batch.GetShard(), PayloadHash: payloadHash,
		HashChain: HashChain(topic, batch.GetStoredUnixNs(), source, payloadHash, &m),
	}
	if attributes := m.GetAttr(); len(attributes) > 0 {
		delivery.Attributes = make(map[string]string, len(attributes))
		for _, one := range attributes {
			delivery.Attributes[one.GetName()] = one.GetValue()
		}
	}
	if sent := m.GetPayloadHash(); len(sent) > 0 && string(sent) != string(payloadHash[:]) {
		delivery.Integrity = NotAsSent
	}
	return delivery, nil
}

// compare holds messages against the hashes that the mailbox sent: one of each for every message, or none at all.
func compare(deliveries []*Delivery, batch *pb.LeasedBatch) error {
	hashes, chains := batch.GetPayloadHash(), batch.GetHashChain()
	if len(hashes) == 0 && len(chains) == 0 {
		return nil
	}
	if len(hashes) != 32*len(deliveries) || len(chains) != len(hashes) {
		return malformed()
	}
	for i, delivery := range deliveries {
		same := string(hashes[32*i:32*i+32]) == string(delivery.PayloadHash[:]) &&
			string(chains[32*i:32*i+32]) == string(delivery.HashChain[:])
		switch {
		case !same:
			// Before the sender's hash: what changed on its way is whole in the mailbox, and comes again.
			delivery.Integrity = NotAsStored
		case delivery.Integrity == Unverified:
			delivery.Integrity = Verified
		}
	}
	return nil
}

func malformed() error {
	return local("malformed", "The mailbox's answer cannot be read.")
}
