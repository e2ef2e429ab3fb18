package snavio

import (
	"crypto/ed25519"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/zeebo/blake3"

	pb "snavio.local/go/snaviov1"
)

// Epochs begin at multiples of this; that number itself is no envelope's.
const epochStride = 1 << 40

// In the canonical form the signature is the last member but one, so that it can be cut out without serialising again:
// what remains is, byte by byte, what was signed, and no other spelling of it has a good signature.
var signatureAtEnd = regexp.MustCompile(`,"signature":"([0-9a-f]{128})"(,"type":"[a-z._]{1,64}"\})$`)

var plainNumber = regexp.MustCompile(`^(0|[1-9][0-9]{0,19})$`)

// Fault is a kind of refusal of an envelope.
type Fault string

const (
	BadDecode    Fault = "decode_error"
	BadSignature Fault = "bad_signature"
	BadScope     Fault = "bad_scope"
	BadChain     Fault = "bad_chain"
	BadNonce     Fault = "bad_nonce"
)

// EnvelopeError is an envelope that cannot be believed.
type EnvelopeError struct {
	Fault   Fault
	Message string
}

func (e *EnvelopeError) Error() string { return string(e.Fault) + ": " + e.Message }

// Event has the catalogue's names.
type Event map[string]any

// Envelope is one verified link of a tenant's chain.
type Envelope struct {
	ID, Type, Scope, KeyID, Prev, Source string
	IssuedAt                             time.Time
	Epoch, Seq                           uint64
	Events                               []Event
	// Digest is what the next one names as its `prev`.
	Digest string
	// Body is the envelope in the bytes in which it came.
	Body []byte
}

// Place is where a reader stands: the last envelope that it has done with.
type Place struct {
	Seq uint64 `json:"seq,string"`
	// Digest is empty where it is not known.
	Digest string `json:"digest"`
}

// Chain verifies the envelopes of one tenant one after the other. With Gaps, numbers may be missing, as in a filtered
// stream.
type Chain struct {
	Tenant string
	Keys   []*pb.PublicKey
	Gaps   bool
	// End is the last envelope that was verified; nil before the first of a stream that is read from wherever it is.
	End *Place
}

// Verify returns the envelope in these bytes, if it is the next one; otherwise an *EnvelopeError, and nothing has
// changed.
func (c *Chain) Verify(body []byte) (*Envelope, error) {
	envelope, form, signature, err := decodeEnvelope(body)
	if err != nil {
		return nil, err
	}
	if envelope.Scope != "tenant:"+c.Tenant {
		return nil, &EnvelopeError{BadScope, fmt.Sprintf("An envelope of %.80q came.", envelope.Scope)}
	}
	if !signedBy(c.Keys, envelope.KeyID, envelope.IssuedAt, form, signature) {
		return nil, &EnvelopeError{BadSignature, fmt.Sprintf("The signature of envelope %d does not fit.", envelope.Seq)}
	}
	// After the signature: a forged number must not be told from a forged signature.
	if why := c.outOfOrder(envelope); why != "" {
		return nil, &EnvelopeError{BadChain, fmt.Sprintf("Envelope %d %s.", envelope.Seq, why)}
	}
	c.End = &Place{envelope.Seq, envelope.Digest}
	return envelope, nil
}

func (c *Chain) outOfOrder(e *Envelope) string {
	first := e.Seq%epochStride == 1
	if first && e.Prev != "" {
		return "is the first of its epoch and names one before it"
	}
	if c.End == nil {
		return ""
	}
	if e.Seq <= c.End.Seq {
		return fmt.Sprintf("came after %d", c.End.Seq)
	}
	follows := e.Seq == c.End.Seq+1
	if !follows && !c.Gaps && !(first && e.Epoch > c.End.Seq/epochStride) {
		return fmt.Sprintf("came instead of %d", c.End.Seq+1)
	}
	if follows && !first && c.End.Digest != "" && e.Prev != c.End.Digest {
		return fmt.Sprintf("does not continue %d", c.End.Seq)
	}
	return ""
}

func signedBy(keys []*pb.PublicKey, id string, at time.Time, form, signature []byte) bool {
	now := at.UnixNano()
	for _, key := range keys {
		ended := key.GetValidUntilUnixNs() > 0 && key.GetValidUntilUnixNs() <= now
		if key.GetKeyId() == id && key.GetValidFromUnixNs() <= now && !ended &&
			len(key.GetPublicKey()) == ed25519.PublicKeySize && ed25519.Verify(key.GetPublicKey(), form, signature) {
			return true
		}
	}
	return false
}

// cutSignature splits what was signed from its signature; nil when there is none where it must be.
func cutSignature(body []byte) (form, signature []byte) {
	at := signatureAtEnd.FindSubmatchIndex(body)
	if at == nil {
		return nil, nil
	}
	signature, _ = hex.DecodeString(string(body[at[2]:at[3]]))
	form = append(append(make([]byte, 0, len(body)), body[:at[0]]...), body[at[4]:at[5]]...)
	return form, signature
}

func decodeEnvelope(body []byte) (*Envelope, []byte, []byte, error) {
	refused := func(why string) (*Envelope, []byte, []byte, error) {
		return nil, nil, nil, &EnvelopeError{BadDecode, "This is not an envelope: " + why + "."}
	}
	form, signature := cutSignature(body)
	if form == nil {
		return refused("no signature where it must be")
	}
	var members map[string]json.RawMessage
	if err := json.Unmarshal(body, &members); err != nil {
		return refused("no JSON")
	}
	text := map[string]string{}
	for _, name := range []string{"id", "type", "scope", "key_id", "issued_at", "epoch", "seq", "prev"} {
		var value *string
		if err := json.Unmarshal(members[name], &value); err != nil || value == nil {
			return refused(name + " is no text")
		}
		text[name] = *value
	}
	if len(members) != 10 {
		return refused("other members than an envelope's")
	}
	var payload struct {
		Source *string  `json:"source"`
		Events *[]Event `json:"events"`
	}
	if err := json.Unmarshal(members["payload"], &payload); err != nil || payload.Source == nil || payload.Events == nil {
		return refused("payload without source and events")
	}
	epoch, seq := readNumber(text["epoch"]), readNumber(text["seq"])
	if epoch == nil || seq == nil || *seq/epochStride != *epoch || *seq%epochStride == 0 {
		return refused("epoch and seq do not belong together")
	}
	issued, err := time.Parse(time.RFC3339Nano, text["issued_at"])
	if err != nil {
		return refused("issued_at is no time")
	}
	digest := blake3.Sum256(form)
	return &Envelope{
		ID: text["id"], Type: text["type"], Scope: text["scope"], KeyID: text["key_id"], IssuedAt: issued,
		Epoch: *epoch, Seq: *seq, Prev: text["prev"], Source: *payload.Source, Events: *payload.Events,
		Digest: "b3:" + hex.EncodeToString(digest[:]), Body: body,
	}, form, signature, nil
}

func readNumber(text string) *uint64 {
	if !plainNumber.MatchString(text) {
		return nil
	}
	number, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return nil
	}
	return &number
}

// Position is the readable part of a stream: with a bookmark of Low or more nothing is missing.
type Position struct {
	Epoch, Low, High uint64
	Head             string
}

func positionOf(members map[string]any) *Position {
	read := func(name string) *uint64 {
		text, _ := members[name].(string)
		return readNumber(text)
	}
	epoch, low, high := read("epoch"), read("low"), read("high")
	head, ok := members["head"].(string)
	if epoch == nil || low == nil || high == nil || !ok || *low > *high || *high/epochStride != *epoch {
		return nil
	}
	return &Position{*epoch, *low, *high, head}
}

var statementText = regexp.MustCompile(`^[A-Za-z0-9:._/-]*$`)

// verifiedPosition reads the signed position of a 410. All of its members are texts that need no escapes, so its
// canonical form is simple.
func verifiedPosition(document map[string]any, tenant string, keys []*pb.PublicKey) (*Position, error) {
	refused := &EnvelopeError{BadSignature, "The statement of the gateway cannot be believed."}
	text := map[string]string{}
	for name, value := range document {
		one, ok := value.(string)
		if !ok || !statementText.MatchString(one) || !statementText.MatchString(name) {
			return nil, refused
		}
		text[name] = one
	}
	signature, err := hex.DecodeString(text["signature"])
	issued, late := time.Parse(time.RFC3339Nano, text["issued_at"])
	if err != nil || late != nil || text["type"] != "snavio.stream.position" || text["scope"] != "tenant:"+tenant {
		return nil, refused
	}
	delete(text, "signature")
	// Go writes the members of a map in their order, and these letters as they are.
	form, err := json.Marshal(text)
	position := positionOf(document)
	if err != nil || position == nil || !signedBy(keys, text["key_id"], issued, form, signature) {
		return nil, refused
	}
	return position, nil
}

// State is the signed state of a tenant, the way out of a bookmark that is too old.
type State struct {
	Position Position
	// Events that are kept, by family.
	Events map[string]any
	Body   []byte
}

func verifiedState(body []byte, tenant string, keys []*pb.PublicKey) (*State, error) {
	refused := &EnvelopeError{BadSignature, "The state cannot be believed."}
	form, signature := cutSignature(body)
	var document map[string]any
	if form == nil || json.Unmarshal(body, &document) != nil {
		return nil, refused
	}
	text := func(name string) string { value, _ := document[name].(string); return value }
	issued, err := time.Parse(time.RFC3339Nano, text("issued_at"))
	members, _ := document["position"].(map[string]any)
	position := positionOf(members)
	if err != nil || position == nil || text("type") != "snavio.stream.state" || text("scope") != "tenant:"+tenant ||
		!signedBy(keys, text("key_id"), issued, form, signature) {
		return nil, refused
	}
	events, _ := document["events"].(map[string]any)
	return &State{*position, events, body}, nil
}

// Family is such as `command`.
func (e *Envelope) Family() string { return strings.TrimPrefix(e.Type, "snavio.telemetry.") }
