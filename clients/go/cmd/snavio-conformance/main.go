// The program that tests/conformance runs: one JSON request per line on stdin, one JSON answer per line on stdout.
//
// Bytes travel as hex. An error is an answer too: {"error": {"reason": ..., "message": ...}}.
package main

import (
	"bufio"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"sync"
	"time"

	"google.golang.org/protobuf/proto"

	snavio "snavio.local/go"
	pb "snavio.local/go/snaviov1"
)

type request struct {
	Op string `json:"op"`
	// sign
	Secret string            `json:"secret"`
	Fields map[string]string `json:"fields"`
	// one command
	Target, Name, Payload, ID string
	ContentType               string `json:"content_type"`
	// many
	Messages [][3]string `json:"messages"`
	// enrol and open
	Address, Fingerprint, Token, Folder, Source, Shield, Signer, Mailbox string
	Principal                                                            string
	TTL                                                                  int     `json:"ttl_s"`
	TimeoutS                                                             float64 `json:"timeout_s"`
	// receive and settle
	Topic        string
	Response     string
	Most         int
	VisibilityMs int   `json:"visibility_ms"`
	WaitMs       int   `json:"wait_ms"`
	Handles      []int `json:"handles"`
	DelayMs      *int  `json:"delay_ms"`
	Reason       string
	Dead         bool
	Count, Batch int
	Lanes        int
	// verify and events
	Keys []struct {
		KeyID     string `json:"key_id"`
		PublicKey string `json:"public_key"`
		From      int64  `json:"valid_from_unix_ns,string"`
		Until     int64  `json:"valid_until_unix_ns,string"`
	}
	Tenant, Gateway string
	After           *snavio.Place
	Gaps            bool
	Bodies, Sources []string
}

type answer map[string]any

type agent struct {
	identities []*snavio.Identity
	identity   *snavio.Identity
	opened     request
	producer   *snavio.Producer
	consumers  map[string]*snavio.Consumer
	deliveries []*snavio.Delivery
	owners     []*snavio.Consumer
}

const patience = 30 * time.Second

func main() {
	lines := bufio.NewScanner(os.Stdin)
	lines.Buffer(nil, 64<<20)
	out := json.NewEncoder(os.Stdout)
	a := &agent{consumers: map[string]*snavio.Consumer{}}
	defer a.close()
	for lines.Scan() {
		var r request
		var told answer
		err := json.Unmarshal(lines.Bytes(), &r)
		if err == nil {
			told, err = a.do(&r)
		}
		if err != nil {
			told = answer{"error": answer{"reason": snavio.ReasonOf(err), "message": err.Error()}}
		}
		if out.Encode(told) != nil {
			return
		}
	}
}

func (a *agent) do(r *request) (answer, error) {
	ctx, cancel := context.WithTimeout(context.Background(), 2*patience)
	defer cancel()
	switch r.Op {
	case "sign":
		return sign(r)
	case "read":
		return read(r)
	case "enrol":
		id, err := snavio.Enrol(ctx, snavio.Enrolment{
			Address: r.Address, Fingerprint: r.Fingerprint, Token: r.Token, Name: r.Name, Folder: r.Folder,
		})
		return answer{"spiffe_id": id}, err
	case "open":
		return a.open(ctx, r)
	case "send":
		producer, err := a.sender(ctx)
		if err != nil {
			return nil, err
		}
		return outcomeOf(producer.Send(ctx, message(r))), nil
	case "send_many":
		return a.sendMany(ctx, r)
	case "send_twice":
		return a.sendTwice(ctx, r)
	case "bench":
		return a.bench(ctx, r)
	case "verify":
		return verify(r)
	case "events":
		return events(ctx, r)
	case "renew":
		return answer{}, a.identity.Renew(ctx)
	case "certificate":
		return answer{"not_after_unix_ns": a.identity.NotAfter().UnixNano(), "spiffe_id": a.identity.SPIFFEID()}, nil
	case "receive":
		return a.receive(ctx, r)
	case "take":
		return a.take(ctx, r)
	case "stream":
		return a.stream(ctx, r)
	case "ack", "nack", "extend":
		return a.settle(ctx, r)
	case "close":
		a.close()
		return answer{}, nil
	}
	return nil, fmt.Errorf("there is no operation %q", r.Op)
}

func sign(r *request) (answer, error) {
	secret, err := hex.DecodeString(r.Secret)
	if err != nil {
		return nil, err
	}
	payload, err := hex.DecodeString(r.Payload)
	if err != nil {
		return nil, err
	}
	f := &snavio.Fields{
		ID: r.Fields["id"], Timestamp: r.Fields["timestamp"], KeyVersion: r.Fields["key_version"],
		Audience: r.Fields["audience"], Target: r.Fields["target"], Name: r.Fields["name"],
		ContentType: r.Fields["content_type"], Traceparent: r.Fields["traceparent"], Payload: payload,
	}
	return answer{
		"signed_text": hex.EncodeToString(snavio.SignedText(f)),
		"command":     hex.EncodeToString(snavio.Sign(secret, f)),
	}, nil
}

func read(r *request) (answer, error) {
	serialised, err := hex.DecodeString(r.Response)
	if err != nil {
		return nil, err
	}
	var response pb.ReceiveResponse
	if err := proto.Unmarshal(serialised, &response); err != nil {
		return nil, err
	}
	deliveries, err := snavio.ReadResponse(&response, r.Topic)
	if err != nil {
		return nil, err
	}
	messages := []answer{}
	for _, one := range deliveries {
		messages = append(messages, tell(one, 0))
	}
	return answer{"messages": messages}, nil
}

func verify(r *request) (answer, error) {
	chain := &snavio.Chain{Tenant: r.Tenant, Gaps: r.Gaps, End: r.After}
	for _, one := range r.Keys {
		key, err := hex.DecodeString(one.PublicKey)
		if err != nil {
			return nil, err
		}
		chain.Keys = append(chain.Keys, &pb.PublicKey{
			KeyId: one.KeyID, PublicKey: key, ValidFromUnixNs: one.From, ValidUntilUnixNs: one.Until,
		})
	}
	outcomes := []string{}
	for _, text := range r.Bodies {
		body, err := hex.DecodeString(text)
		if err != nil {
			return nil, err
		}
		envelope, err := chain.Verify(body)
		var refused *snavio.EnvelopeError
		switch {
		case err == nil:
			outcomes = append(outcomes, envelope.Digest)
		case errors.As(err, &refused):
			outcomes = append(outcomes, string(refused.Fault))
		default:
			return nil, err
		}
	}
	return answer{"outcomes": outcomes}, nil
}

func events(ctx context.Context, r *request) (answer, error) {
	reader, err := snavio.OpenIdentity(ctx, snavio.IdentityConfig{Folder: r.Folder, Signer: r.Signer})
	if err != nil {
		return nil, err
	}
	defer reader.Close()
	followed := snavio.FollowEvents(snavio.EventsConfig{
		Gateway: r.Gateway, Signer: r.Signer, Identity: reader, Tenant: r.Tenant, Sources: r.Sources,
		Bookmark: r.After, LongestPause: 100 * time.Millisecond,
	})
	defer followed.Close()
	items := []answer{}
	for {
		// One more than is told: to ask for it says that the one before is done with.
		item, err := followed.Next(ctx)
		if err != nil {
			return nil, err
		}
		if len(items) == r.Most {
			return answer{"items": items, "bookmark": followed.Bookmark()}, nil
		}
		if item.Reset != nil {
			items = append(items, answer{"reset": fmt.Sprint(item.Reset.Position.High)})
			continue
		}
		items = append(items, answer{
			"seq": fmt.Sprint(item.Envelope.Seq), "source": item.Envelope.Source, "events": item.Envelope.Events,
		})
	}
}

func (a *agent) open(ctx context.Context, r *request) (answer, error) {
	a.close()
	a.opened = *r
	var principal *snavio.Identity
	if r.Principal != "" {
		opened, err := snavio.OpenIdentity(ctx, snavio.IdentityConfig{Folder: r.Principal, Signer: r.Signer})
		if err != nil {
			return nil, err
		}
		principal = opened
		a.identities = append(a.identities, opened)
	}
	identity, err := snavio.OpenIdentity(ctx, snavio.IdentityConfig{
		Folder: r.Folder, Signer: r.Signer, Source: r.Source, Principal: principal,
		TTL: time.Duration(r.TTL) * time.Second,
	})
	if err != nil {
		return nil, err
	}
	a.identity = identity
	a.identities = append(a.identities, identity)
	return answer{"spiffe_id": identity.SPIFFEID(), "not_after_unix_ns": identity.NotAfter().UnixNano()}, nil
}

func (a *agent) sender(ctx context.Context) (*snavio.Producer, error) {
	if a.producer != nil {
		return a.producer, nil
	}
	timeout := patience
	if a.opened.TimeoutS > 0 {
		timeout = time.Duration(a.opened.TimeoutS * float64(time.Second))
	}
	producer, err := snavio.NewProducer(ctx, snavio.ProducerConfig{
		Shield: a.opened.Shield, Signer: a.opened.Signer, Identity: a.identity, Timeout: timeout,
	})
	a.producer = producer
	return producer, err
}

func message(r *request) snavio.Message {
	payload, _ := hex.DecodeString(r.Payload)
	return snavio.Message{Target: r.Target, Name: r.Name, Payload: payload, ContentType: r.ContentType, ID: r.ID}
}

func outcomeOf(o snavio.Outcome) answer {
	return answer{
		"verdict": int(o.Verdict), "reason": o.Verdict.String(), "id": o.ID, "attempts": o.Attempts,
		"detail": o.Detail, "retry_after_ms": o.RetryAfter.Milliseconds(),
	}
}

func (a *agent) sendMany(ctx context.Context, r *request) (answer, error) {
	producer, err := a.sender(ctx)
	if err != nil {
		return nil, err
	}
	messages := make([]snavio.Message, len(r.Messages))
	for i, one := range r.Messages {
		payload, err := hex.DecodeString(one[2])
		if err != nil {
			return nil, err
		}
		messages[i] = snavio.Message{Target: one[0], Name: one[1], Payload: payload}
	}
	outcomes := []answer{}
	for _, one := range producer.SendBatch(ctx, messages) {
		outcomes = append(outcomes, outcomeOf(one))
	}
	return answer{"outcomes": outcomes}, nil
}

func (a *agent) sendTwice(ctx context.Context, r *request) (answer, error) {
	producer, err := a.sender(ctx)
	if err != nil {
		return nil, err
	}
	command, err := producer.SignNow(ctx, message(r))
	if err != nil {
		return nil, err
	}
	codes := []int{}
	for range 2 {
		verdict, _, err := producer.Submit(ctx, command)
		if err != nil {
			return nil, err
		}
		codes = append(codes, int(verdict))
	}
	return answer{"verdicts": codes}, nil
}

// bench sends count commands in batches over one connection, lanes of them at a time.
func (a *agent) bench(ctx context.Context, r *request) (answer, error) {
	producer, err := a.sender(ctx)
	if err != nil {
		return nil, err
	}
	payload, err := hex.DecodeString(r.Payload)
	if err != nil {
		return nil, err
	}
	messages := make([]snavio.Message, r.Batch)
	for i := range messages {
		messages[i] = snavio.Message{Target: r.Target, Name: r.Name, Payload: payload}
	}
	var group sync.WaitGroup
	var mu sync.Mutex
	delivered := 0
	batches := r.Count / r.Batch
	start := time.Now()
	for lane := range r.Lanes {
		group.Go(func() {
			good := 0
			for n := lane; n < batches; n += r.Lanes {
				for _, one := range producer.SendBatch(ctx, messages) {
					if one.Verdict.Good() {
						good++
					}
				}
			}
			mu.Lock()
			delivered += good
			mu.Unlock()
		})
	}
	group.Wait()
	return answer{"seconds": time.Since(start).Seconds(), "delivered": delivered}, nil
}

func (a *agent) consumer(r *request) *snavio.Consumer {
	visibility := time.Duration(r.VisibilityMs) * time.Millisecond
	key := fmt.Sprint(r.Topic, " ", visibility)
	if a.consumers[key] == nil {
		a.consumers[key] = snavio.NewConsumer(snavio.ConsumerConfig{
			Mailbox: a.opened.Mailbox, Signer: a.opened.Signer, Identity: a.identity, Topic: r.Topic, Visibility: visibility,
		})
	}
	return a.consumers[key]
}

func tell(one *snavio.Delivery, handle int) answer {
	return answer{
		"handle": handle, "attempt": one.Attempt, "id": one.ID, "source": one.Source, "target": one.Target,
		"name": one.Name, "payload": hex.EncodeToString(one.Payload), "integrity": int(one.Integrity),
		"payload_hash": hex.EncodeToString(one.PayloadHash[:]), "hash_chain": hex.EncodeToString(one.HashChain[:]),
	}
}

func (a *agent) handed(consumer *snavio.Consumer, deliveries []*snavio.Delivery) answer {
	messages := []answer{}
	for _, one := range deliveries {
		a.deliveries = append(a.deliveries, one)
		a.owners = append(a.owners, consumer)
		messages = append(messages, tell(one, len(a.deliveries)-1))
	}
	return answer{"messages": messages, "integrity_failures": consumer.IntegrityFailures()}
}

func (a *agent) receive(ctx context.Context, r *request) (answer, error) {
	consumer := a.consumer(r)
	deliveries, err := consumer.Receive(ctx, r.Most, time.Duration(r.WaitMs)*time.Millisecond)
	if err != nil {
		return nil, err
	}
	return a.handed(consumer, deliveries), nil
}

// take receives until there are `most` messages.
func (a *agent) take(ctx context.Context, r *request) (answer, error) {
	consumer := a.consumer(r)
	var deliveries []*snavio.Delivery
	for len(deliveries) < r.Most {
		more, err := consumer.Receive(ctx, r.Most-len(deliveries), time.Second)
		if err != nil {
			return nil, err
		}
		deliveries = append(deliveries, more...)
	}
	return a.handed(consumer, deliveries), nil
}

// stream receives exactly `most` messages over RecvStream.
func (a *agent) stream(ctx context.Context, r *request) (answer, error) {
	consumer := a.consumer(r)
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	var deliveries []*snavio.Delivery
	err := consumer.Stream(ctx, r.Most, func(one *snavio.Delivery) error {
		if deliveries = append(deliveries, one); len(deliveries) == r.Most {
			cancel()
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	return a.handed(consumer, deliveries), nil
}

func (a *agent) settle(ctx context.Context, r *request) (answer, error) {
	var deliveries []*snavio.Delivery
	var consumer *snavio.Consumer
	for _, handle := range r.Handles {
		deliveries = append(deliveries, a.deliveries[handle])
		consumer = a.owners[handle]
	}
	var settled []snavio.Settlement
	var err error
	switch r.Op {
	case "ack":
		settled, err = consumer.Ack(ctx, deliveries...)
	case "nack":
		manner := snavio.Nack{Reason: r.Reason, Dead: r.Dead}
		if r.DelayMs != nil {
			delay := time.Duration(*r.DelayMs) * time.Millisecond
			manner.Delay = &delay
		}
		settled, err = consumer.Nack(ctx, manner, deliveries...)
	case "extend":
		settled, err = consumer.Extend(ctx, time.Duration(r.VisibilityMs)*time.Millisecond, deliveries...)
	}
	codes := []int{}
	for _, one := range settled {
		codes = append(codes, int(one))
	}
	return answer{"codes": codes}, err
}

func (a *agent) close() {
	if a.producer != nil {
		a.producer.Close()
		a.producer = nil
	}
	for _, consumer := range a.consumers {
		consumer.Close()
	}
	a.consumers = map[string]*snavio.Consumer{}
	for _, identity := range a.identities {
		identity.Close()
	}
	a.identities, a.identity = nil, nil
}
