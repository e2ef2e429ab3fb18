package snavio

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"

	pb "snavio.local/go/snaviov1"
)

const (
	firstPause       = 200 * time.Millisecond
	longestPause     = 15 * time.Second
	silence          = 45 * time.Second // three heartbeats
	mostRefusals     = 8                // in a row: a server that lies does not stop because it is asked again
	mostEventBytes   = 4 << 20
	mostNonces       = 100_000
	keysAtMostEvery  = time.Second
	keysAge          = 5 * time.Minute // one that an emergency rotation ended must not count for ever
	outsideOfReplays = "last_event_id_outside_replay_window"
)

// EventsConfig says whose events are read, from where and on.
type EventsConfig struct {
	// Gateway and Signer are addresses, host:port.
	Gateway, Signer string
	Identity        *Identity
	Tenant          string
	// Sources and Types choose envelopes; without them all come.
	Sources, Types []string
	// Capability for the stream, for others than the tenant's principals.
	Capability string
	// Bookmark is where an earlier reader stopped; nil begins with what comes from now on.
	Bookmark *Place
	// LongestPause between two connections; 15 s if it is zero.
	LongestPause time.Duration
}

// Item is a verified envelope, or a Reset where some were missed: the state to go on from.
type Item struct {
	Envelope *Envelope
	Reset    *State
}

// Events follows a tenant's signed events. It is for one goroutine.
type Events struct {
	config   EventsConfig
	signer   *channel
	place    *Place // of the last item that was done with
	handed   *Place
	body     io.ReadCloser
	reader   *bufio.Reader
	chain    *Chain
	cancel   context.CancelFunc
	keys     []*pb.PublicKey
	asked    time.Time
	seen     map[string]struct{}
	order    []string
	pause    time.Duration
	refusals int
	// Refused counts what was not believed, by fault; Replays what came twice.
	Refused map[Fault]int
	Replays int
}

// FollowEvents opens nothing yet: the first Next does.
func FollowEvents(config EventsConfig) *Events {
	if config.LongestPause == 0 {
		config.LongestPause = longestPause
	}
	return &Events{
		config: config, signer: newChannel(config.Identity, config.Signer, "signer"), place: config.Bookmark,
		seen: map[string]struct{}{}, pause: firstPause, Refused: map[Fault]int{},
	}
}

// Bookmark is the place after the last item that was done with: Next was called after it. Store it to go on later.
func (e *Events) Bookmark() *Place { return e.place }

// Close ends the connection.
func (e *Events) Close() {
	e.disconnect()
	e.signer.close()
}

// Next waits for the next item; to ask for it says that the one before it is done with. It fails when the gateway refuses the
// reader itself, or when what comes cannot be believed again and again.
func (e *Events) Next(ctx context.Context) (*Item, error) {
	if e.handed != nil {
		e.place, e.handed = e.handed, nil
	}
	for {
		item, err := e.attempt(ctx)
		if err == nil {
			e.pause, e.refusals = firstPause, 0
			if item.Envelope != nil {
				e.handed = &Place{item.Envelope.Seq, item.Envelope.Digest}
			} else {
				e.handed = &Place{item.Reset.Position.High, item.Reset.Position.Head}
			}
			return item, nil
		}
		e.disconnect()
		var refused *EnvelopeError
		var told *Error
		switch {
		case ctx.Err() != nil:
			return nil, ctx.Err()
		case errors.As(err, &refused):
			e.Refused[refused.Fault]++
			if e.refusals++; e.refusals >= mostRefusals {
				return nil, err
			}
		case errors.As(err, &told) && !told.Retryable():
			return nil, err
		}
		// Also after a clean end: a server that ends every stream at once must not be asked without a pause.
		wait := time.Duration(float64(e.pause) * (0.5 + 0.5*rand.Float64()))
		if told != nil {
			wait = max(wait, told.RetryAfter)
		}
		e.pause = min(e.config.LongestPause, 2*e.pause)
		select {
		case <-ctx.Done():
			return nil, ctx.Err()
		case <-time.After(wait):
		}
	}
}

func (e *Events) attempt(ctx context.Context) (*Item, error) {
	if e.body == nil {
		reset, err := e.connect(ctx)
		if err != nil || reset != nil {
			return &Item{Reset: reset}, err
		}
	}
	stop := context.AfterFunc(ctx, e.cancel)
	defer stop()
	for {
		id, data, err := readEvent(e.reader)
		if err != nil {
			return nil, err
		}
		envelope, err := e.verify(ctx, id, data)
		if err != nil {
			return nil, err
		}
		if envelope != nil {
			return &Item{Envelope: envelope}, nil
		}
	}
}

// verify returns nil without an error for an envelope that was seen before.
func (e *Events) verify(ctx context.Context, id string, data []byte) (*Envelope, error) {
	before := e.chain.End
	if time.Since(e.asked) >= keysAge {
		if err := e.fetchKeys(ctx); err != nil {
			return nil, err
		}
	}
	e.chain.Keys = e.keys
	envelope, err := e.chain.Verify(data)
	var refused *EnvelopeError
	if errors.As(err, &refused) && refused.Fault == BadSignature && time.Since(e.asked) >= keysAtMostEvery {
		// A key that is not known yet, perhaps.
		if err := e.fetchKeys(ctx); err != nil {
			return nil, err
		}
		e.chain.Keys = e.keys
		envelope, err = e.chain.Verify(data)
	}
	if errors.As(err, &refused) && refused.Fault == BadChain {
		if again, _, _, _ := decodeEnvelope(data); again != nil {
			if _, known := e.seen[again.ID]; known {
				e.Replays++
				return nil, nil
			}
		}
	}
	if err != nil {
		return nil, err
	}
	// The id decides where the next connection begins: one that is not the envelope's own would skip others.
	if id != strconv.FormatUint(envelope.Seq, 10) {
		e.chain.End = before
		return nil, &EnvelopeError{BadDecode, "The event's id is not its envelope's number."}
	}
	if _, known := e.seen[envelope.ID]; known {
		e.chain.End = before
		return nil, &EnvelopeError{BadNonce, "An id came twice."}
	}
	e.seen[envelope.ID] = struct{}{}
	if e.order = append(e.order, envelope.ID); len(e.order) > mostNonces {
		delete(e.seen, e.order[0])
		e.order = e.order[1:]
	}
	return envelope, nil
}

func (e *Events) fetchKeys(ctx context.Context) error {
	e.asked = time.Now()
	connection, err := e.signer.connection()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var trailer metadata.MD
	told, err := pb.NewSignerClient(connection).GetPublicKeys(ctx,
		&pb.GetPublicKeysRequest{Scope: "tenant:" + e.config.Tenant, IncludeEnded: true}, grpc.Trailer(&trailer))
	if err != nil {
		return errorOf(err, trailer)
	}
	e.keys = told.GetKey()
	return nil
}

func (e *Events) connect(ctx context.Context) (*State, error) {
	query := url.Values{"source": e.config.Sources, "type": e.config.Types}
	header := http.Header{"Accept": {"text/event-stream"}}
	if e.place != nil {
		header.Set("Last-Event-ID", strconv.FormatUint(e.place.Seq, 10))
	}
	// It outlives the call that opens it; Close and silence end it.
	live, cancel := context.WithCancel(context.WithoutCancel(ctx))
	stop := context.AfterFunc(ctx, cancel)
	answer, err := e.get(live, "/events?"+query.Encode(), header)
	if err != nil {
		stop()
		cancel()
		return nil, err
	}
	if answer.StatusCode == http.StatusOK {
		stop()
		e.body, e.cancel = answer.Body, cancel
		e.reader = bufio.NewReaderSize(&guarded{answer.Body, cancel}, 64<<10)
		e.chain = &Chain{Tenant: e.config.Tenant, Gaps: len(e.config.Sources)+len(e.config.Types) > 0, End: e.place}
		return nil, nil
	}
	defer cancel()
	defer answer.Body.Close()
	told, document := problemOf(answer)
	if answer.StatusCode == http.StatusGone && told.Reason == outsideOfReplays {
		position, _ := document["position"].(map[string]any)
		return e.reset(live, position)
	}
	return nil, told
}

// reset has the state to go on from; an error unless both statements are signed and say that the place is gone.
func (e *Events) reset(ctx context.Context, told map[string]any) (*State, error) {
	if err := e.fetchKeys(ctx); err != nil {
		return nil, err
	}
	position, err := verifiedPosition(told, e.config.Tenant, e.keys)
	if err != nil {
		return nil, err
	}
	if e.place == nil || e.place.Seq >= position.Low {
		return nil, &EnvelopeError{BadChain, "The gateway says that the bookmark is gone, and signs that it is not."}
	}
	answer, err := e.get(ctx, "/state", http.Header{})
	if err != nil {
		return nil, err
	}
	defer answer.Body.Close()
	if answer.StatusCode != http.StatusOK {
		told, _ := problemOf(answer)
		return nil, told
	}
	body, err := io.ReadAll(io.LimitReader(answer.Body, mostEventBytes))
	if err != nil {
		return nil, unavailable(err)
	}
	state, err := verifiedState(body, e.config.Tenant, e.keys)
	if err == nil && e.place.Seq >= state.Position.High {
		err = &EnvelopeError{BadChain, "The state is older than the bookmark."}
	}
	return state, err
}

func (e *Events) get(ctx context.Context, path string, header http.Header) (*http.Response, error) {
	config, err := e.config.Identity.tlsConfig("gateway")
	if err != nil {
		return nil, err
	}
	transport := &http.Transport{
		// No proxy: one of the environment must not see where events are read.
		Proxy: nil, TLSClientConfig: config, DisableKeepAlives: true, DisableCompression: true,
		DialContext:         (&net.Dialer{Timeout: callTimeout}).DialContext,
		TLSHandshakeTimeout: callTimeout, ResponseHeaderTimeout: silence,
	}
	client := &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}
	place := "https://" + e.config.Gateway + "/v1/tenants/" + url.PathEscape(e.config.Tenant) + path
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, place, nil)
	if err != nil {
		return nil, local("bad-address", "%s is no address.", e.config.Gateway)
	}
	request.Header = header
	if e.config.Capability != "" {
		request.Header.Set("Snavio-Capability", e.config.Capability)
	}
	answer, err := client.Do(request)
	if err != nil {
		return nil, unavailable(err)
	}
	return answer, nil
}

func (e *Events) disconnect() {
	if e.body != nil {
		e.cancel()
		_ = e.body.Close()
		e.body = nil
	}
}

// guarded ends a connection on which nothing comes for three heartbeats.
type guarded struct {
	body   io.Reader
	cancel context.CancelFunc
}

func (g *guarded) Read(into []byte) (int, error) {
	timer := time.AfterFunc(silence, g.cancel)
	defer timer.Stop()
	read, err := g.body.Read(into)
	if err != nil {
		return read, unavailable(err)
	}
	return read, nil
}

// readEvent returns the next event that has data. Lines end with LF, as the gateway's do, or CRLF.
func readEvent(reader *bufio.Reader) (id string, data []byte, err error) {
	found := false
	for {
		line, err := readLine(reader, mostEventBytes-len(data))
		if err != nil {
			return "", nil, err
		}
		if len(line) == 0 {
			if found {
				return id, data, nil
			}
			id = ""
			continue
		}
		name, value, _ := bytes.Cut(line, []byte(":"))
		value = bytes.TrimPrefix(value, []byte(" "))
		switch string(name) {
		case "data":
			if found {
				data = append(data, '\n')
			}
			data, found = append(data, value...), true
		case "id":
			id = string(value)
		}
	}
}

func readLine(reader *bufio.Reader, most int) ([]byte, error) {
	var line []byte
	for {
		part, err := reader.ReadSlice('\n')
		line = append(line, part...)
		if len(line) > most {
			return nil, &EnvelopeError{BadDecode, "An event is too large."}
		}
		if err == nil {
			return bytes.TrimRight(line, "\r\n"), nil
		}
		if !errors.Is(err, bufio.ErrBufferFull) {
			return nil, err
		}
	}
}

func problemOf(answer *http.Response) (*Error, map[string]any) {
	body, _ := io.ReadAll(io.LimitReader(answer.Body, mostEventBytes))
	var document map[string]any
	_ = json.Unmarshal(body, &document)
	text := func(name string) string { value, _ := document[name].(string); return value }
	status := codes.FailedPrecondition
	switch {
	case answer.StatusCode == http.StatusTooManyRequests:
		status = codes.ResourceExhausted
	case answer.StatusCode >= 500:
		status = codes.Unavailable
	case answer.StatusCode == http.StatusUnauthorized:
		status = codes.Unauthenticated
	case answer.StatusCode == http.StatusForbidden:
		status = codes.PermissionDenied
	case answer.StatusCode == http.StatusNotFound:
		status = codes.NotFound
	}
	told := &Error{Status: status, Reason: text("reason"), Message: text("detail")}
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil && seconds > 0 {
		told.RetryAfter = time.Duration(min(seconds, 300)) * time.Second
	}
	return told, document
}

func unavailable(err error) error {
	return &Error{Status: codes.Unavailable, Reason: "unavailable", Message: err.Error()}
}
