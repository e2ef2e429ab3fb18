package snavio

import (
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/keepalive"
)

const (
	maxMessageBytes = 4 << 20
	retireAfter     = 2 * time.Minute
)

// channel is a connection to one service of the mesh, opened anew after every renewal of the certificate.
type channel struct {
	identity *Identity
	address  string
	service  string
	mu       sync.Mutex
	current  *grpc.ClientConn
	renewals uint64
}

func newChannel(identity *Identity, address, service string) *channel {
	return &channel{identity: identity, address: address, service: service}
}

// connection is the one to use now. Calls that run on the one before may go on for two minutes.
func (c *channel) connection() (*grpc.ClientConn, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	renewals := c.identity.renewals()
	if c.current != nil && c.renewals == renewals {
		return c.current, nil
	}
	config, err := c.identity.tlsConfig(c.service)
	if err != nil {
		return nil, err
	}
	opened, err := grpc.NewClient("passthrough:///"+c.address, dialOptions(credentials.NewTLS(config))...)
	if err != nil {
		return nil, err
	}
	if old := c.current; old != nil {
		time.AfterFunc(retireAfter, func() { _ = old.Close() })
	}
	c.current, c.renewals = opened, renewals
	return opened, nil
}

func (c *channel) stale() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.renewals != c.identity.renewals()
}

func (c *channel) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.current != nil {
		_ = c.current.Close()
		c.current = nil
	}
}

func dialOptions(transport credentials.TransportCredentials) []grpc.DialOption {
	return []grpc.DialOption{
		grpc.WithTransportCredentials(transport),
		grpc.WithNoProxy(),
		grpc.WithDisableServiceConfig(),
		// Only the producer may repeat a command, because only it can sign again.
		grpc.WithDisableRetry(),
		grpc.WithKeepaliveParams(keepalive.ClientParameters{
			Time: 20 * time.Second, Timeout: 10 * time.Second, PermitWithoutStream: true,
		}),
		grpc.WithConnectParams(grpc.ConnectParams{
			Backoff:           backoff.Config{BaseDelay: 100 * time.Millisecond, Multiplier: 1.6, Jitter: 0.2, MaxDelay: time.Second},
			MinConnectTimeout: 5 * time.Second,
		}),
		grpc.WithDefaultCallOptions(
			grpc.MaxCallRecvMsgSize(maxMessageBytes), grpc.MaxCallSendMsgSize(maxMessageBytes)),
	}
}
