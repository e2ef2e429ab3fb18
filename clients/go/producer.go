package snavio

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "snavio.local/go/snaviov1"
)

// Message is one command to send.
type Message struct {
	Target, Name, ContentType, Traceparent string
	Payload                                []byte
	// ID is kept over all attempts; empty for a new one.
	ID string
}

// Shares tell why a source was refused for fairness.
type Shares struct {
	Source, Competing float64
	Volume            uint32
}

// Outcome is what became of one command.
type Outcome struct {
	Verdict  Verdict
	ID       string
	Attempts int
	// RetryAfter and ThrottleUntil are the mesh's hints; zero where it gave none.
	RetryAfter    time.Duration
	ThrottleUntil time.Time
	Detail        string
	Shares        *Shares
}

// ProducerConfig says where the mesh is, who sends, and for how long a send tries.
type ProducerConfig struct {
	Shield, Signer string
	Identity       *Identity
	// Timeout for a send with all its attempts; zero for 10 s.
	Timeout time.Duration
	// MaxAttempts bounds them further; zero does not.
	MaxAttempts int
}

// Producer signs commands and sends them on one stream to Shield. Safe for several goroutines.
type Producer struct {
	config  ProducerConfig
	shield  *channel
	signer  *channel
	keys    *keyring
	budget  retryBudget
	stop    context.CancelFunc
	opening sync.Mutex
	mu      sync.Mutex
	current *stream
}

const (
	attemptTimeout = 6 * time.Second
	attemptBudget  = 5 * time.Second
	keyNews        = 10 * time.Second
	shieldBehind   = 250 * time.Millisecond
	// Attempts after which another one because of something learned costs a pause, as any other does.
	maxLessons = 4
)

// NewProducer fetches the keys and greets Shield; it fails when either does not work before ctx ends.
func NewProducer(ctx context.Context, config ProducerConfig) (*Producer, error) {
	if config.Timeout == 0 {
		config.Timeout = 10 * time.Second
	}
	following, stop := context.WithCancel(context.Background())
	p := &Producer{
		config: config, stop: stop,
		shield: newChannel(config.Identity, config.Shield, "shield"),
		signer: newChannel(config.Identity, config.Signer, "signer"),
		budget: retryBudget{tokens: 100, at: time.Now()},
	}
	p.keys = &keyring{channel: p.signer}
	if err := p.keys.fetch(ctx); err != nil {
		p.Close()
		return nil, err
	}
	if _, err := p.stream(ctx); err != nil {
		p.Close()
		return nil, err
	}
	go p.keys.follow(following)
	return p, nil
}

// Close waits for answers under way, at most two seconds.
func (p *Producer) Close() {
	p.stop()
	p.mu.Lock()
	current := p.current
	p.current = nil
	p.mu.Unlock()
	if current != nil {
		current.close(2 * time.Second)
	}
	p.shield.close()
	p.signer.close()
}

// Source is <tenant>/<service>, as Signer knows the caller.
func (p *Producer) Source() string {
	p.keys.mu.Lock()
	defer p.keys.mu.Unlock()
	return p.keys.source
}

// Send sends one command and waits for its outcome.
func (p *Producer) Send(ctx context.Context, message Message) Outcome {
	return p.SendBatch(ctx, []Message{message})[0]
}

// SendBatch sends many at once; outcomes come in the same order. What another attempt can change is tried again under
// the same id with a fresh signature, until the time is over.
func (p *Producer) SendBatch(ctx context.Context, messages []Message) []Outcome {
	ctx, cancel := context.WithTimeout(ctx, p.config.Timeout)
	defer cancel()
	outcomes := make([]Outcome, len(messages))
	open := make([]int, len(messages))
	ids := newIDs(len(messages))
	for i := range messages {
		open[i] = i
		outcomes[i].ID = messages[i].ID
		if outcomes[i].ID == "" {
			outcomes[i].ID = ids[i]
		}
	}
	doubt := make([]bool, len(messages))
	p.budget.deposit(len(messages))
	for len(open) > 0 {
		basis := p.attempt(ctx, messages, outcomes, open)
		again, pause := p.sortOut(ctx, basis, outcomes, doubt, open)
		if len(again) == 0 || !sleep(ctx, pause) {
			break
		}
		open = again
	}
	for i := range outcomes {
		if doubt[i] && !outcomes[i].Verdict.Good() && outcomes[i].Verdict != OutcomeUnknown {
			// The refusal speaks of the last attempt only; an earlier one may have arrived.
			outcomes[i].Detail = outcomes[i].Verdict.String() + " after an attempt without an answer"
			outcomes[i].Verdict = OutcomeUnknown
		}
	}
	return outcomes
}

// basis is what an attempt was signed with; once one of them has changed, another attempt makes sense at once.
type basis struct {
	stream   *stream
	audience string
	keys     uint64
	renewals uint64
}

func (p *Producer) attempt(ctx context.Context, messages []Message, outcomes []Outcome, open []int) basis {
	used := basis{renewals: p.config.Identity.renewals()}
	all := func(told answer) basis {
		for _, i := range open {
			record(&outcomes[i], told)
		}
		return used
	}
	current, err := p.stream(ctx)
	if err != nil {
		told := answer{verdict: DeliveryFailure, detail: err.Error()}
		if ReasonOf(err) == "certificate-expired" {
			told.verdict = CertificateExpired
		}
		return all(told)
	}
	now := time.Now()
	key, generation, err := p.keys.signing(now)
	if err != nil {
		return all(answer{verdict: KeyExpired, detail: err.Error()})
	}
	used.stream, used.audience, used.keys = current, current.signFor(), generation
	attempt, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	signer := newCommandSigner(key.GetSecret())
	limit := int(current.limits.GetMaxBatchBytes()) - frameSlack
	most := int(current.limits.GetMaxBatchCommands())
	fields := Fields{Timestamp: Timestamp(now), KeyVersion: key.GetVersion(), Audience: used.audience}
	var batches []*submitted
	var commands [][]byte
	size := 0
	flush := func() {
		if len(commands) > 0 {
			batches = append(batches, current.submit(attempt, commands, attemptBudget))
			commands, size = nil, 0
		}
	}
	buffer := make([]byte, 0, 512*min(len(open), most))
	for _, i := range open {
		m := &messages[i]
		fields.ID, fields.Target, fields.Name = outcomes[i].ID, m.Target, m.Name
		fields.ContentType, fields.Traceparent, fields.Payload = m.ContentType, m.Traceparent, m.Payload
		start := len(buffer)
		buffer = signer.append(buffer, &fields)
		command := buffer[start:len(buffer):len(buffer)]
		if len(commands) == most || size+len(command)+5 > limit {
			flush()
		}
		commands = append(commands, command)
		size += len(command) + 5
	}
	flush()
	place := 0
	for _, batch := range batches {
		select {
		case <-batch.done:
		case <-attempt.Done():
		}
		current.mu.Lock()
		for _, told := range batch.answers {
			if told.verdict == Undecided {
				told = answer{verdict: OutcomeUnknown, detail: "no answer in time"}
			}
			record(&outcomes[open[place]], told)
			place++
		}
		current.mu.Unlock()
	}
	return used
}

func record(outcome *Outcome, told answer) {
	outcome.Verdict, outcome.RetryAfter, outcome.ThrottleUntil = told.verdict, told.retryAfter, told.throttleUntil
	outcome.Detail, outcome.Shares = told.detail, told.shares
	outcome.Attempts++
}

// sortOut tells which commands are to be sent again, and after which pause.
func (p *Producer) sortOut(
	ctx context.Context, used basis, outcomes []Outcome, doubt []bool, open []int,
) (again []int, pause time.Duration) {
	learned := map[Verdict]bool{}
	for _, i := range open {
		outcome := &outcomes[i]
		verdict := outcome.Verdict
		doubt[i] = doubt[i] || verdict == OutcomeUnknown
		if verdict.Good() || p.config.MaxAttempts > 0 && outcome.Attempts >= p.config.MaxAttempts {
			continue
		}
		news, asked := learned[verdict]
		if !asked {
			news = p.learn(ctx, verdict, used, outcome.Detail)
			learned[verdict] = news
		}
		if news && outcome.Attempts <= maxLessons {
			again = append(again, i)
			continue
		}
		if !verdict.Retryable() {
			continue
		}
		hint := outcome.RetryAfter
		ahead := verdict == UnknownKeyVersion && p.keys.newsWithin(keyNews)
		if ahead {
			// Shield will have caught up, and it refuses all at once: no token for that.
			hint = max(hint, shieldBehind<<min(outcome.Attempts-1, 5))
		} else if !p.budget.withdraw() {
			continue
		}
		ceiling := min(2*time.Second, 50*time.Millisecond<<min(outcome.Attempts-1, 10))
		wait := hint + rand.N(ceiling)
		if deadline, ok := ctx.Deadline(); ok && time.Now().Add(wait).After(deadline) {
			continue
		}
		pause = max(pause, wait)
		again = append(again, i)
	}
	return again, pause
}

// learn tells whether signatures or the connection differ from now on because of this refusal.
func (p *Producer) learn(ctx context.Context, verdict Verdict, used basis, detail string) bool {
	switch {
	case verdict == WrongAudience && used.stream != nil:
		return used.stream.moved(used.audience, detail)
	case verdict.keyRefused():
		return p.keys.refused(ctx, used.keys)
	case verdict == CertificateExpired:
		if p.config.Identity.renewals() == used.renewals {
			_ = p.config.Identity.Renew(ctx) // Shield's verdict is the better answer if it fails
		}
		return p.config.Identity.renewals() != used.renewals
	default:
		return false
	}
}

// stream is the one to send on: another when the last one ended, is about to, or began under an older certificate.
func (p *Producer) stream(ctx context.Context) (*stream, error) {
	p.opening.Lock()
	defer p.opening.Unlock()
	p.mu.Lock()
	current := p.current
	p.mu.Unlock()
	if current != nil && current.usable() && !p.shield.stale() {
		return current, nil
	}
	if current != nil {
		current.leave()
	}
	for attempt := 0; ; attempt++ {
		connection, err := p.shield.connection()
		if err != nil {
			return nil, err
		}
		opened, err := openStream(ctx, connection)
		if err == nil {
			p.mu.Lock()
			p.current = opened
			p.mu.Unlock()
			return opened, nil
		}
		if !time.Now().Before(p.config.Identity.NotAfter()) {
			// TLS refuses an ended certificate without saying so: the connection breaks, and that is all.
			if p.config.Identity.Renew(ctx) == nil {
				continue
			}
		}
		var refused *Error
		if errors.As(err, &refused) && !refused.Retryable() {
			return nil, err
		}
		wait := 50*time.Millisecond<<min(attempt, 5) + rand.N(50*time.Millisecond)
		if refused != nil {
			wait = max(wait, refused.RetryAfter)
		}
		if !sleep(ctx, wait) {
			return nil, err
		}
	}
}

// Submit sends one serialised command by the unary call, once and as it is; the verdict is Shield's or the mesh's.
func (p *Producer) Submit(ctx context.Context, command []byte) (Verdict, string, error) {
	connection, err := p.shield.connection()
	if err != nil {
		return Undecided, "", err
	}
	ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
	defer cancel()
	var trailer metadata.MD
	told, err := pb.NewShieldClient(connection).Submit(ctx, &pb.SubmitRequest{Command: command}, grpc.Trailer(&trailer))
	if err != nil {
		return Undecided, "", errorOf(err, trailer)
	}
	detail := ""
	if len(told.GetRefusal()) > 0 {
		detail = told.GetRefusal()[0].GetDetail()
	}
	if len(told.GetCodes()) == 0 {
		if len(told.GetRefusal()) > 0 {
			return known(byte(told.GetRefusal()[0].GetReason())), detail, nil
		}
		return OutcomeUnknown, detail, nil
	}
	return known(told.GetCodes()[0]), detail, nil
}

// SignNow signs a message for this moment with the key and the audience in use; for Submit.
func (p *Producer) SignNow(ctx context.Context, m Message) ([]byte, error) {
	current, err := p.stream(ctx)
	if err != nil {
		return nil, err
	}
	now := time.Now()
	key, _, err := p.keys.signing(now)
	if err != nil {
		return nil, err
	}
	id := m.ID
	if id == "" {
		id = NewID()
	}
	return Sign(key.GetSecret(), &Fields{
		ID: id, Timestamp: Timestamp(now), KeyVersion: key.GetVersion(), Audience: current.signFor(),
		Target: m.Target, Name: m.Name, ContentType: m.ContentType, Traceparent: m.Traceparent, Payload: m.Payload,
	}), nil
}

func sleep(ctx context.Context, span time.Duration) bool {
	if span <= 0 {
		return ctx.Err() == nil
	}
	select {
	case <-time.After(span):
		return true
	case <-ctx.Done():
		return false
	}
}

// retryBudget keeps retries near a tenth of the traffic: a mesh that refuses must not be hammered by those it refused.
type retryBudget struct {
	mu     sync.Mutex
	tokens float64
	at     time.Time
}

func (b *retryBudget) deposit(sent int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.tokens = min(1000, b.tokens+float64(sent)*0.1)
}

func (b *retryBudget) withdraw() bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	now := time.Now()
	b.tokens = min(1000, b.tokens+10*now.Sub(b.at).Seconds())
	b.at = now
	if b.tokens < 1 {
		return false
	}
	b.tokens--
	return true
}
