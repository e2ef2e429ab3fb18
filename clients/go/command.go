package snavio

import (
	"crypto/hmac"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"hash"
	"strconv"
	"time"

	"google.golang.org/protobuf/encoding/protowire"
)

// CommandType is the only value of a command's type.
const CommandType = "snavio.command-sent"

// Fields are the parts of a command that its tag covers, and its trace context, which it does not cover.
type Fields struct {
	ID, Timestamp, KeyVersion, Audience, Target, Name, ContentType, Traceparent string
	Payload                                                                     []byte
}

// SignedText is what the HMAC covers. No field above the payload can hold a line feed, so no byte can move from one
// field to another.
func SignedText(f *Fields) []byte { return appendSignedText(nil, f) }

func appendSignedText(text []byte, f *Fields) []byte {
	for _, line := range [...]string{
		"SNAVIO1", f.KeyVersion, f.Audience, f.ID, f.Timestamp, CommandType, f.Target, f.Name, f.ContentType,
	} {
		text = append(text, line...)
		text = append(text, '\n')
	}
	text = strconv.AppendInt(text, int64(len(f.Payload)), 10)
	text = append(text, '\n')
	return append(text, f.Payload...)
}

// commandSigner signs with one key and reuses its buffers. Not safe for several goroutines at once.
type commandSigner struct {
	mac  hash.Hash
	text []byte
	tag  [sha256.Size]byte
}

func newCommandSigner(secret []byte) *commandSigner {
	return &commandSigner{mac: hmac.New(sha256.New, secret)}
}

// append signs f and appends the serialised Command.
func (s *commandSigner) append(out []byte, f *Fields) []byte {
	s.text = appendSignedText(s.text[:0], f)
	s.mac.Reset()
	s.mac.Write(s.text)
	tag := s.mac.Sum(s.tag[:0])
	text := func(number protowire.Number, value string) {
		if value != "" {
			out = protowire.AppendTag(out, number, protowire.BytesType)
			out = protowire.AppendString(out, value)
		}
	}
	text(1, f.ID)
	text(2, f.Timestamp)
	text(3, CommandType)
	text(4, f.KeyVersion)
	text(5, f.Audience)
	out = protowire.AppendTag(out, 6, protowire.BytesType)
	out = protowire.AppendBytes(out, tag)
	text(7, f.Target)
	text(8, f.Name)
	text(9, f.ContentType)
	if len(f.Payload) > 0 {
		out = protowire.AppendTag(out, 10, protowire.BytesType)
		out = protowire.AppendBytes(out, f.Payload)
	}
	text(11, f.Traceparent)
	return out
}

// Sign returns the serialised Command, ready to be sent once.
func Sign(secret []byte, f *Fields) []byte { return newCommandSigner(secret).append(nil, f) }

// Timestamp is a time as a command carries it: UTC with nine fractional digits.
func Timestamp(t time.Time) string { return t.UTC().Format("2006-01-02T15:04:05.000000000Z") }

// NewID is a UUID of version 7, which sorts by time.
func NewID() string {
	var id [16]byte
	// Never fails: crypto/rand ends the program where the system has no randomness.
	_, _ = rand.Read(id[6:])
	return formatID(&id, time.Now())
}

func formatID(id *[16]byte, now time.Time) string {
	ms := uint64(now.UnixMilli())
	for i := range 6 {
		id[i] = byte(ms >> (40 - 8*i))
	}
	id[6] = id[6]&0x0f | 0x70
	id[8] = id[8]&0x3f | 0x80
	var text [36]byte
	hex.Encode(text[0:8], id[0:4])
	hex.Encode(text[9:13], id[4:6])
	hex.Encode(text[14:18], id[6:8])
	hex.Encode(text[19:23], id[8:10])
	hex.Encode(text[24:36], id[10:16])
	text[8], text[13], text[18], text[23] = '-', '-', '-', '-'
	return string(text[:])
}

// newIDs makes many with one read of the system's randomness.
func newIDs(count int) []string {
	random := make([]byte, 10*count)
	_, _ = rand.Read(random)
	now, ids := time.Now(), make([]string, count)
	for i := range ids {
		var id [16]byte
		copy(id[6:], random[10*i:])
		ids[i] = formatID(&id, now)
	}
	return ids
}
