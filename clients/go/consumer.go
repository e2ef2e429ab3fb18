package snavio

import (
	"context"
	"errors"
	"io"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/protobuf/proto"

	pb "snavio.local/go/snaviov1"
)

// Settlement is the mailbox's answer to one receipt.
type Settlement uint8

const (
	// Done as asked.
	Done = Settlement(pb.Settlement_SETTLEMENT_DONE)
	// Late: the lease had ended, so that another consumer may have the message; nothing changed.
	Late = Settlement(pb.Settlement_SETTLEMENT_LATE)
	// Gone: the message was settled before, or there is none; nothing changed.
	Gone = Settlement(pb.Settlement_SETTLEMENT_GONE)
)

// Nack says how messages are given back.
type Nack struct {
	// Delay before the next attempt; nil leaves it to the mailbox, whose pauses are random and grow.
	Delay *time.Duration
	// Reason for the attempt record, at most 256 bytes.
	Reason string
	// Dead sends them to the DLQ instead of another attempt.
	Dead bool
	// Unseen does not count this delivery as an attempt.
	Unseen bool
}

// ConsumerConfig says where the mailbox is, who receives, and from which topic.
type ConsumerConfig struct {
	Mailbox string
	// Signer gives capabilities; empty takes the address that the mailbox names.
	Signer   string
	Identity *Identity
	Topic    string
	// Visibility is the duration of a lease; zero for 30 s.
	Visibility time.Duration
	// Capability to present instead of one that is asked for.
	Capability string
}

// Consumer receives the messages of one topic. Safe for several goroutines.
type Consumer struct {
	config     ConsumerConfig
	mailbox    *channel
	capability *capability
	damaged    atomic.Int64
}

const (
	mostPerReceive = 1000
	mostBytes      = 1 << 20
	chunkBytes     = 64 << 10
	maxWholeBytes  = 2 << 20
	mostPerSettle  = 8192
)

// NewConsumer connects at the first call.
func NewConsumer(config ConsumerConfig) *Consumer {
	if config.Visibility == 0 {
		config.Visibility = 30 * time.Second
	}
	return &Consumer{
		config:     config,
		mailbox:    newChannel(config.Identity, config.Mailbox, "mailbox"),
		capability: newCapability(config),
	}
}

// Close ends the connection. Leases that are open end by themselves.
func (c *Consumer) Close() { c.mailbox.close() }

// IntegrityFailures counts messages that did not match their hashes (E_INTEGRITY) and were given back unseen.
func (c *Consumer) IntegrityFailures() int64 { return c.damaged.Load() }

// Receive leases up to most messages and waits for a first one. Damaged messages are given back and left out.
func (c *Consumer) Receive(ctx context.Context, most int, wait time.Duration) ([]*Delivery, error) {
	request := &pb.ReceiveRequest{
		Topic: c.config.Topic, VisibilityMs: milliseconds(c.config.Visibility),
		MaxMessages: uint32(min(most, mostPerReceive)), MaxBytes: mostBytes, WaitMs: milliseconds(wait),
	}
	var response *pb.ReceiveResponse
	err := c.call(ctx, wait+callTimeout, func(ctx context.Context, client pb.MailboxClient, options ...grpc.CallOption) error {
		var err error
		response, err = client.Receive(ctx, request, options...)
		return err
	})
	if err != nil {
		return nil, err
	}
	return c.sound(ctx, response)
}

// sound gives back what does not match its hashes; no damaged message reaches the application.
func (c *Consumer) sound(ctx context.Context, response *pb.ReceiveResponse) ([]*Delivery, error) {
	deliveries, err := ReadResponse(response, c.config.Topic)
	if err != nil {
		return nil, err
	}
	good := make([]*Delivery, 0, len(deliveries))
	var changed, wrong []*Delivery
	for _, delivery := range deliveries {
		switch delivery.Integrity {
		case NotAsStored:
			changed = append(changed, delivery)
		case NotAsSent:
			wrong = append(wrong, delivery)
		default:
			good = append(good, delivery)
		}
	}
	c.damaged.Add(int64(len(changed) + len(wrong)))
	if len(changed) > 0 {
		// The mailbox has it as it was: another attempt may bring it whole.
		_, err = c.Nack(ctx, Nack{Reason: "E_INTEGRITY: payload_hash or hash_chain is not what the mailbox computed"}, changed...)
	}
	if len(wrong) > 0 && err == nil {
		_, err = c.Nack(ctx, Nack{Reason: "E_INTEGRITY: the payload is not what its sender hashed", Dead: true}, wrong...)
	}
	return good, err
}

// Stream hands every message to handle as it comes, with at most credit of them out at a time, until ctx ends or
// handle fails. It is opened again when the mailbox ends it, and after a renewal.
func (c *Consumer) Stream(ctx context.Context, credit int, handle func(*Delivery) error) error {
	for failures := 0; ; {
		handed, err := c.streamOnce(ctx, credit, handle)
		if ctx.Err() != nil {
			return nil
		}
		if handed {
			failures = 0
		}
		var refused *Error
		if err != nil && errors.As(err, &refused) && !refused.Retryable() || err != nil && refused == nil {
			return err
		}
		if err != nil {
			failures++
			if !sleep(ctx, max(refused.RetryAfter, 50*time.Millisecond<<min(failures, 5))) {
				return nil
			}
		}
	}
}

// handlerError tells an error of the application from one of the mesh.
type handlerError struct{ error }

func (e handlerError) Unwrap() error { return e.error }

func (c *Consumer) streamOnce(ctx context.Context, credit int, handle func(*Delivery) error) (handed bool, err error) {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	connection, err := c.mailbox.connection()
	if err != nil {
		return false, err
	}
	presented, err := c.capability.present(ctx)
	if err != nil {
		return false, err
	}
	rpc, err := pb.NewMailboxClient(connection).RecvStream(withCapability(ctx, presented))
	if err == nil {
		err = rpc.Send(&pb.RecvStreamRequest{
			Open: &pb.ReceiveRequest{
				Topic: c.config.Topic, VisibilityMs: milliseconds(c.config.Visibility),
				MaxMessages: mostPerReceive, MaxBytes: mostBytes,
			},
			Credit: uint32(credit), ChunkBytes: chunkBytes,
		})
	}
	if rpc == nil {
		return false, errorOf(err, nil)
	}
	var pieces []byte
	closing := false
	for {
		frame, err := rpc.Recv()
		if errors.Is(err, io.EOF) {
			return handed, nil
		}
		if err != nil {
			told := errorOf(err, rpc.Trailer())
			if c.capability.helps(told) {
				return handed, c.capability.replace(ctx, presented, told)
			}
			return handed, told
		}
		if piece := frame.GetPiece(); len(piece) > 0 {
			pieces = append(pieces, piece...)
			if len(pieces) > maxWholeBytes {
				return handed, malformed()
			}
			if frame.GetMore() {
				continue
			}
			frame = &pb.ReceiveResponse{}
			if proto.Unmarshal(pieces, frame) != nil {
				return handed, malformed()
			}
			pieces = nil
		} else if len(pieces) > 0 {
			return handed, malformed()
		}
		taken := 0
		for _, batch := range frame.GetBatch() {
			for _, run := range batch.GetRun() {
				taken += len(run.GetCommand())
			}
		}
		good, err := c.sound(ctx, frame)
		if err != nil {
			return handed, err
		}
		for _, delivery := range good {
			handed = true
			if err := handle(delivery); err != nil {
				return handed, handlerError{err}
			}
		}
		if closing {
			continue
		}
		if c.mailbox.stale() || c.capability.changed(presented) {
			// Another certificate or capability: what is leased for this stream still arrives, then it ends.
			closing = true
			_ = rpc.CloseSend()
		} else if taken > 0 {
			_ = rpc.Send(&pb.RecvStreamRequest{Credit: uint32(taken)})
		}
	}
}

// Ack ends leases for good, durably.
func (c *Consumer) Ack(ctx context.Context, deliveries ...*Delivery) ([]Settlement, error) {
	return c.settle(ctx, deliveries, func(
		ctx context.Context, client pb.MailboxClient, receipts *pb.Receipts, options ...grpc.CallOption,
	) (*pb.SettleResponse, error) {
		return client.Ack(ctx, &pb.AckRequest{Topic: c.config.Topic, Receipts: receipts}, options...)
	})
}

// Nack gives messages back.
func (c *Consumer) Nack(ctx context.Context, manner Nack, deliveries ...*Delivery) ([]Settlement, error) {
	return c.settle(ctx, deliveries, func(
		ctx context.Context, client pb.MailboxClient, receipts *pb.Receipts, options ...grpc.CallOption,
	) (*pb.SettleResponse, error) {
		request := &pb.NackRequest{
			Topic: c.config.Topic, Receipts: receipts, Reason: manner.Reason, Dead: manner.Dead, Unseen: manner.Unseen,
		}
		if manner.Delay != nil {
			request.DelayMs = proto.Uint32(milliseconds(*manner.Delay))
		}
		return client.Nack(ctx, request, options...)
	})
}

// Extend counts the visibility anew, from now on.
func (c *Consumer) Extend(ctx context.Context, visibility time.Duration, deliveries ...*Delivery) ([]Settlement, error) {
	return c.settle(ctx, deliveries, func(
		ctx context.Context, client pb.MailboxClient, receipts *pb.Receipts, options ...grpc.CallOption,
	) (*pb.SettleResponse, error) {
		request := &pb.ExtendRequest{Topic: c.config.Topic, Receipts: receipts, VisibilityMs: milliseconds(visibility)}
		return client.Extend(ctx, request, options...)
	})
}

type settleCall func(context.Context, pb.MailboxClient, *pb.Receipts, ...grpc.CallOption) (*pb.SettleResponse, error)

func (c *Consumer) settle(ctx context.Context, deliveries []*Delivery, call settleCall) ([]Settlement, error) {
	settlements := make([]Settlement, 0, len(deliveries))
	for len(deliveries) > 0 {
		// One call is about one life of the mailbox.
		count := 1
		for count < min(len(deliveries), mostPerSettle) && deliveries[count].bootEpoch == deliveries[0].bootEpoch {
			count++
		}
		receipts := &pb.Receipts{BootEpoch: deliveries[0].bootEpoch}
		for _, delivery := range deliveries[:count] {
			receipts.MsgId = append(receipts.MsgId, delivery.MsgID)
			receipts.Attempt = append(receipts.Attempt, delivery.Attempt)
		}
		var response *pb.SettleResponse
		err := c.call(ctx, callTimeout, func(ctx context.Context, client pb.MailboxClient, options ...grpc.CallOption) error {
			var err error
			response, err = call(ctx, client, receipts, options...)
			return err
		})
		if err != nil {
			return settlements, err
		}
		if len(response.GetCodes()) != count {
			return settlements, malformed()
		}
		for _, code := range response.GetCodes() {
			settlements = append(settlements, Settlement(code))
		}
		deliveries = deliveries[count:]
	}
	return settlements, nil
}

// call makes one unary call; one that was refused for its capability has done nothing, and is made again with another.
func (c *Consumer) call(
	ctx context.Context, within time.Duration,
	call func(context.Context, pb.MailboxClient, ...grpc.CallOption) error,
) error {
	ctx, cancel := context.WithTimeout(ctx, within)
	defer cancel()
	for again := true; ; again = false {
		connection, err := c.mailbox.connection()
		if err != nil {
			return err
		}
		presented, err := c.capability.present(ctx)
		if err != nil {
			return err
		}
		var trailer metadata.MD
		err = errorOf(call(withCapability(ctx, presented), pb.NewMailboxClient(connection), grpc.Trailer(&trailer)), trailer)
		if err == nil {
			return nil
		}
		if !time.Now().Before(c.config.Identity.NotAfter()) && again && c.config.Identity.Renew(ctx) == nil {
			continue
		}
		if !again || !c.capability.helps(err) {
			return err
		}
		if err := c.capability.replace(ctx, presented, err); err != nil {
			return err
		}
	}
}

func milliseconds(span time.Duration) uint32 { return uint32(max(0, span.Milliseconds())) }

func withCapability(ctx context.Context, capability string) context.Context {
	if capability == "" {
		return ctx
	}
	return metadata.AppendToOutgoingContext(ctx, "snavio-capability", capability)
}

// capability is what calls to the mailbox carry: asked for on demand, and renewed when two thirds of its life are over.
type capability struct {
	config  ConsumerConfig
	turn    sync.Mutex
	mu      sync.Mutex
	text    string
	renewAt time.Time
	signer  string
	quiet   time.Time
}

func newCapability(config ConsumerConfig) *capability {
	return &capability{config: config, text: config.Capability, signer: config.Signer}
}

func (c *capability) present(ctx context.Context) (string, error) {
	c.mu.Lock()
	text, due := c.text, !c.renewAt.IsZero() && time.Now().After(c.renewAt)
	c.mu.Unlock()
	if due {
		c.turn.Lock()
		defer c.turn.Unlock()
		if c.changed(text) {
			return c.present(ctx)
		}
		if err := c.ask(ctx); err != nil {
			// The old one is good for a while; Signer may be back by then.
			c.mu.Lock()
			c.renewAt = time.Now().Add(5 * time.Second)
			c.mu.Unlock()
			return text, nil
		}
		c.mu.Lock()
		text = c.text
		c.mu.Unlock()
	}
	return text, nil
}

func (c *capability) changed(presented string) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.text != presented
}

// helps tells whether another capability could change this answer.
func (c *capability) helps(err error) bool {
	return c.config.Capability == "" &&
		slices.Contains([]string{"cap-required", "cap-expired", "cap-revoked", "cap-unknown-root"}, ReasonOf(err))
}

// replace asks Signer for another one, unless that was done since.
func (c *capability) replace(ctx context.Context, presented string, refusal error) error {
	c.turn.Lock()
	defer c.turn.Unlock()
	if c.changed(presented) {
		return nil
	}
	c.mu.Lock()
	if c.signer == "" {
		var refused *Error
		if errors.As(refusal, &refused) {
			c.signer = refused.signer
		}
	}
	early := time.Now().Before(c.quiet)
	c.quiet = time.Now().Add(500 * time.Millisecond)
	c.mu.Unlock()
	if early {
		// Just issued, and the mailbox does not know its root yet: Signer must not be flooded.
		return &Error{Status: codes.Unavailable, Reason: ReasonOf(refusal), Message: refusal.Error()}
	}
	return c.ask(ctx)
}

func (c *capability) ask(ctx context.Context) error {
	c.mu.Lock()
	signer := c.signer
	c.mu.Unlock()
	if signer == "" {
		return local("no-signer", "Nobody has said where Signer is.")
	}
	// Its certificate has to be Signer's, whoever named the address.
	channel := newChannel(c.config.Identity, signer, "signer")
	defer channel.close()
	connection, err := channel.connection()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	asked := time.Now()
	var trailer metadata.MD
	told, err := pb.NewSignerClient(connection).IssueCapability(ctx, &pb.IssueCapabilityRequest{
		Realm: c.config.Topic, Operation: []string{"recv", "ack", "nack", "extend", "stats"},
	}, grpc.Trailer(&trailer))
	if err != nil {
		return errorOf(err, trailer)
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.text = told.GetCapability()
	c.renewAt = asked.Add(time.Duration(told.GetTtlSeconds()) * time.Second * 2 / 3)
	return nil
}
