package snavio

import (
	"context"
	"errors"
	"io"
	"sync"
	"time"

	"google.golang.org/grpc"

	pb "snavio.local/go/snaviov1"
)

const (
	helloTimeout = 10 * time.Second
	// Shield counts the whole frame; the header and each command's tag and length are in it too.
	frameSlack = 64
)

// answer is what Shield says about one command in one attempt.
type answer struct {
	verdict       Verdict
	retryAfter    time.Duration
	throttleUntil time.Time
	detail        string
	shares        *Shares
}

// submitted is one batch on a stream. Each command is answered once; done is closed when all are.
type submitted struct {
	answers []answer
	open    int
	done    chan struct{}
}

func (b *submitted) note(number int, told answer) {
	if number < len(b.answers) && b.answers[number].verdict == Undecided && told.verdict != Undecided {
		b.answers[number] = told
		b.open--
	}
}

func (b *submitted) finish(told answer) {
	for number := range b.answers {
		b.note(number, told)
	}
}

// stream is one SubmitStream, from its Hello to its end.
type stream struct {
	rpc      grpc.BidiStreamingClient[pb.Submission, pb.Verdicts]
	cancel   context.CancelFunc
	limits   *pb.Limits
	sending  sync.Mutex // one frame at a time, and none after the half is closed
	seq      uint64
	slots    chan struct{}
	mu       sync.Mutex
	audience string
	pending  map[uint64]*submitted
	leaving  bool
	ended    error
	over     chan struct{}
}

func openStream(ctx context.Context, connection *grpc.ClientConn) (*stream, error) {
	streaming, cancel := context.WithCancel(context.Background())
	timer := time.AfterFunc(helloTimeout, cancel)
	stop := context.AfterFunc(ctx, cancel)
	defer timer.Stop()
	defer stop()
	rpc, err := pb.NewShieldClient(connection).SubmitStream(streaming)
	if err == nil {
		err = rpc.Send(&pb.Submission{Hello: &pb.Hello{WireVersion: 1}})
	}
	var first *pb.Verdicts
	if err == nil || errors.Is(err, io.EOF) {
		first, err = rpc.Recv()
	}
	if err != nil {
		cancel()
		if rpc == nil {
			return nil, errorOf(err, nil)
		}
		return nil, errorOf(err, rpc.Trailer())
	}
	hello := first.GetHello()
	if hello.GetAudience() == "" {
		cancel()
		return nil, local("no-hello", "Shield opened the stream without an audience.")
	}
	s := &stream{
		rpc: rpc, cancel: cancel, limits: hello.GetLimits(), audience: hello.GetAudience(),
		slots:   make(chan struct{}, max(1, hello.GetLimits().GetMaxBatchesInFlight())),
		pending: map[uint64]*submitted{}, over: make(chan struct{}),
	}
	go s.read()
	return s, nil
}

func (s *stream) usable() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.leaving && s.ended == nil
}

func (s *stream) signFor() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.audience
}

// moved takes another audience from a refusal; it tells whether signatures differ from those made for `signed`.
func (s *stream) moved(signed, detail string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.audience == signed && detail != "" {
		s.audience = detail
	}
	return s.audience != signed
}

// submit sends one batch. Commands that were never written are certainly not delivered.
func (s *stream) submit(ctx context.Context, commands [][]byte, budget time.Duration) *submitted {
	batch := &submitted{answers: make([]answer, len(commands)), open: len(commands), done: make(chan struct{})}
	unsent := func(why string) *submitted {
		batch.finish(answer{verdict: DeliveryFailure, detail: why})
		close(batch.done)
		return batch
	}
	select {
	case s.slots <- struct{}{}:
	case <-s.over:
		return unsent("the stream ended before this was sent")
	case <-ctx.Done():
		return unsent("no room on the stream in time")
	}
	s.sending.Lock()
	defer s.sending.Unlock()
	s.mu.Lock()
	if s.leaving || s.ended != nil {
		s.mu.Unlock()
		<-s.slots
		return unsent("the stream ended before this was sent")
	}
	s.seq++
	seq := s.seq
	s.pending[seq] = batch
	s.mu.Unlock()
	frame := &pb.Submission{
		Header:  &pb.BatchHeader{BatchSeq: seq, BudgetMs: uint32(budget.Milliseconds())},
		Command: commands,
	}
	// An error here is told by the reader too, which answers everything that is pending.
	_ = s.rpc.Send(frame)
	return batch
}

func (s *stream) read() {
	defer close(s.over)
	defer s.cancel()
	for {
		told, err := s.rpc.Recv()
		if err != nil {
			s.mu.Lock()
			s.ended = errorOf(err, s.rpc.Trailer())
			for _, batch := range s.pending {
				batch.finish(answer{verdict: OutcomeUnknown, detail: "the stream ended without an answer"})
				close(batch.done)
			}
			s.pending = map[uint64]*submitted{}
			s.mu.Unlock()
			return
		}
		if told.GetHello().GetGoingAway() {
			s.leave()
			continue
		}
		s.settle(told)
	}
}

func (s *stream) settle(told *pb.Verdicts) {
	s.mu.Lock()
	defer s.mu.Unlock()
	batch := s.pending[told.GetBatchSeq()]
	if batch == nil {
		return
	}
	whole := batch.open == len(batch.answers)
	// A cause that hit many commands is explained once, for the first of them.
	explained := map[Verdict]answer{}
	refusals := map[int]answer{}
	for _, refusal := range told.GetRefusal() {
		refusals[int(refusal.GetIndex())] = answerOf(refusal)
	}
	first := int(told.GetFirst())
	for place, code := range told.GetCodes() {
		number := first + place
		if refusal, ok := refusals[number]; ok {
			explained[refusal.verdict] = refusal
		}
		verdict := known(code)
		if shared, ok := explained[verdict]; ok {
			batch.note(number, shared)
		} else {
			batch.note(number, answer{verdict: verdict})
		}
	}
	if told.GetFinal() && batch.open > 0 {
		left := answer{verdict: OutcomeUnknown, detail: "the answer left it out"}
		if whole && len(told.GetCodes()) == 0 && len(told.GetRefusal()) > 0 {
			// The frame was refused before it was parsed: nothing of it is in doubt.
			left = answerOf(told.GetRefusal()[0])
		}
		batch.finish(left)
	}
	if batch.open == 0 {
		delete(s.pending, told.GetBatchSeq())
		close(batch.done)
		<-s.slots
	}
}

func answerOf(refusal *pb.Refusal) answer {
	told := answer{
		verdict:    known(byte(refusal.GetReason())),
		retryAfter: time.Duration(refusal.GetRetryAfterMs()) * time.Millisecond,
		detail:     refusal.GetDetail(),
	}
	if until := refusal.GetThrottleUntilUnixNs(); until > 0 {
		told.throttleUntil = time.Unix(0, until)
	}
	if told.verdict == FairnessViolation {
		told.shares = &Shares{refusal.GetSourceShare(), refusal.GetCompetingShare(), refusal.GetDispatchVolume()}
	}
	return told
}

// leave sends nothing more; what was sent is still answered.
func (s *stream) leave() {
	s.mu.Lock()
	before := s.leaving
	s.leaving = true
	s.mu.Unlock()
	if before {
		return
	}
	go func() {
		s.sending.Lock()
		defer s.sending.Unlock()
		_ = s.rpc.CloseSend()
	}()
}

// close waits a bounded time for the answers under way.
func (s *stream) close(within time.Duration) {
	s.leave()
	select {
	case <-s.over:
	case <-time.After(within):
		s.cancel()
		<-s.over
	}
}
