package snavio

import (
	"context"
	"crypto/tls"
	"errors"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "snavio.local/go/snaviov1"
)

// IdentityConfig says which certificate an Identity keeps, and how.
type IdentityConfig struct {
	// Folder of cert.pem, key.pem and ca.pem.
	Folder string
	// Signer is its address, host:port.
	Signer string
	// Source is <tenant>/<service>; needed when the folder is still empty.
	Source string
	// Principal may act as the service: the certificate is had through it. Without one the service renews itself.
	Principal *Identity
	// TTL of a service's certificate; zero for the longest.
	TTL time.Duration
}

// Identity is a certificate that is renewed before it ends: of a principal, or of a service.
type Identity struct {
	config  IdentityConfig
	renewal sync.Mutex // one renewal at a time
	mu      sync.Mutex
	held    *bundle
	count   uint64
	stop    context.CancelFunc
	done    chan struct{}
}

// OpenIdentity reads the folder, or has a certificate made for it through the principal, and keeps it from ending
// until Close.
func OpenIdentity(ctx context.Context, config IdentityConfig) (*Identity, error) {
	identity := &Identity{config: config, done: make(chan struct{})}
	held, err := readFolder(config.Folder)
	switch {
	case err == nil:
		identity.adopt(held)
		if !time.Now().Before(held.leaf.NotAfter) {
			err = identity.Renew(ctx)
		}
	case config.Principal != nil && config.Source != "":
		err = identity.Renew(ctx)
	}
	if err != nil {
		return nil, err
	}
	background, stop := context.WithCancel(context.Background())
	identity.stop = stop
	go identity.follow(background)
	return identity, nil
}

// Close ends the renewal; the files stay.
func (i *Identity) Close() {
	i.stop()
	<-i.done
}

// SPIFFEID is the identity in the certificate.
func (i *Identity) SPIFFEID() string { return i.bundle().spiffeID }

// NotAfter is the end of the certificate.
func (i *Identity) NotAfter() time.Time { return i.bundle().leaf.NotAfter }

// Source is <tenant>/<service> of a service's certificate.
func (i *Identity) Source() string {
	_, tenant, _, name, _ := parseSPIFFE(i.SPIFFEID())
	return tenant + "/" + name
}

// Renew has another certificate made now, with a new key. A service's certificate that has ended is had again through
// the principal; one that renews itself cannot be.
func (i *Identity) Renew(ctx context.Context) error {
	i.renewal.Lock()
	defer i.renewal.Unlock()
	key, csr, err := newKeyAndCSR()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	issued, spiffeID, err := i.certify(ctx, string(csr))
	if err != nil {
		return err
	}
	err = keep(i.config.Folder, []byte(issued.GetCertificatePem()), key, []byte(issued.GetCaPem()), spiffeID)
	if err != nil {
		return err
	}
	held, err := readFolder(i.config.Folder)
	if err != nil {
		return err
	}
	i.adopt(held)
	return nil
}

func (i *Identity) certify(ctx context.Context, csr string) (*pb.IssueCertificateResponse, string, error) {
	caller := i.config.Principal
	if caller == nil {
		caller = i
	}
	held := i.bundle()
	var spiffeID, kind, source string
	if held != nil {
		trustDomain, tenant, found, name, err := parseSPIFFE(held.spiffeID)
		if err != nil {
			return nil, "", err
		}
		_, spiffeID, kind, source = trustDomain, held.spiffeID, found, tenant+"/"+name
	} else {
		trustDomain, _, _, _, err := parseSPIFFE(caller.SPIFFEID())
		if err != nil {
			return nil, "", err
		}
		source, kind = i.config.Source, "service"
		spiffeID = serviceID(trustDomain, source)
	}
	channel := newChannel(caller, i.config.Signer, "signer")
	defer channel.close()
	connection, err := channel.connection()
	if err != nil {
		return nil, "", err
	}
	client := pb.NewSignerClient(connection)
	var trailer metadata.MD
	var issued *pb.IssueCertificateResponse
	if kind == "principal" {
		issued, err = client.IssueCertificate(ctx,
			&pb.IssueCertificateRequest{CsrPem: csr, SpiffeId: spiffeID}, grpc.Trailer(&trailer))
	} else {
		issued, err = client.AssumeService(ctx, &pb.AssumeServiceRequest{
			Source: source, CsrPem: csr, TtlSeconds: uint32(i.config.TTL / time.Second),
		}, grpc.Trailer(&trailer))
	}
	return issued, spiffeID, errorOf(err, trailer)
}

func (i *Identity) follow(ctx context.Context) {
	defer close(i.done)
	failures := 0
	for {
		held := i.bundle()
		wait := time.Until(dueTime(held))
		if failures > 0 {
			wait = min(time.Minute, 500*time.Millisecond<<min(failures-1, 7))
			wait = wait/2 + rand.N(wait/2)
		}
		select {
		case <-ctx.Done():
			return
		// At most a minute: another process that shares the folder may have renewed it, or a machine slept.
		case <-time.After(min(time.Minute, max(50*time.Millisecond, wait))):
		}
		if found, err := readFolder(i.config.Folder); err == nil && !found.leaf.Equal(held.leaf) {
			i.adopt(found)
			failures = 0
			continue
		}
		if time.Now().Before(dueTime(held)) {
			continue
		}
		if err := i.Renew(ctx); err != nil && !errors.Is(err, context.Canceled) {
			failures++
		} else {
			failures = 0
		}
	}
}

// dueTime is when two thirds of the life are over, or a little earlier: processes that were started together must not
// renew together. The same for one certificate at every call.
func dueTime(held *bundle) time.Time {
	issued := held.leaf.NotBefore.Add(backdate)
	if issued.After(held.leaf.NotAfter) {
		issued = held.leaf.NotAfter
	}
	life := held.leaf.NotAfter.Sub(issued)
	spread := float64(held.leaf.SerialNumber.Bytes()[0]) / 255
	return issued.Add(time.Duration(float64(life) * (2.0/3 - spread/10)))
}

func (i *Identity) adopt(held *bundle) {
	i.mu.Lock()
	defer i.mu.Unlock()
	i.held = held
	i.count++
}

func (i *Identity) bundle() *bundle {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.held
}

// renewals grows with every certificate; a connection that was opened with an older one is left in time.
func (i *Identity) renewals() uint64 {
	i.mu.Lock()
	defer i.mu.Unlock()
	return i.count
}

func (i *Identity) tlsConfig(service string) (*tls.Config, error) {
	held := i.bundle()
	trustDomain, _, _, _, err := parseSPIFFE(held.spiffeID)
	if err != nil {
		return nil, err
	}
	return &tls.Config{
		Certificates: []tls.Certificate{held.certificate},
		RootCAs:      held.roots,
		// Not the address that was dialled: the certificate says which service answers, not where.
		ServerName: service + ".mesh." + trustDomain,
		MinVersion: tls.VersionTLS12,
	}, nil
}
