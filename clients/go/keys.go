package snavio

import (
	"context"
	"math/rand/v2"
	"sync"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/metadata"

	pb "snavio.local/go/snaviov1"
)

// askAtMostEvery bounds questions that only Shield's refusals cause.
const askAtMostEvery = time.Second

// keyring holds the caller's key set as Signer told it last.
type keyring struct {
	channel    *channel
	mu         sync.Mutex
	source     string
	versions   []*pb.KeyVersion
	primary    string
	generation uint64
	changed    time.Time
	pressed    time.Time
	pollAfter  time.Duration
	asking     sync.Mutex
}

func (k *keyring) fetch(ctx context.Context) error {
	k.asking.Lock()
	defer k.asking.Unlock()
	return k.ask(ctx)
}

func (k *keyring) ask(ctx context.Context) error {
	connection, err := k.channel.connection()
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, callTimeout)
	defer cancel()
	var trailer metadata.MD
	told, err := pb.NewSignerClient(connection).TenantConfig(ctx, &pb.TenantConfigRequest{},
		grpc.Trailer(&trailer), grpc.WaitForReady(true))
	if err != nil {
		return errorOf(err, trailer)
	}
	k.learn(told)
	return nil
}

func (k *keyring) learn(told *pb.TenantConfigResponse) {
	k.mu.Lock()
	defer k.mu.Unlock()
	set := told.GetKeyset()
	versions := set.GetVersion()
	if set.GetDeleted() {
		versions = nil
	}
	if k.primary != told.GetPrimary() || !sameVersions(k.versions, versions) {
		k.generation++
		k.changed = time.Now()
	}
	k.versions, k.primary, k.source = versions, told.GetPrimary(), set.GetSource()
	k.pollAfter = min(24*time.Hour, max(time.Second, time.Duration(told.GetPollAfterSeconds())*time.Second))
}

func sameVersions(a, b []*pb.KeyVersion) bool {
	if len(a) != len(b) {
		return false
	}
	for i := range a {
		if a[i].GetVersion() != b[i].GetVersion() || a[i].GetRevoked() != b[i].GetRevoked() ||
			a[i].GetNotAfterUnixNs() != b[i].GetNotAfterUnixNs() ||
			a[i].GetPrimaryFromUnixNs() != b[i].GetPrimaryFromUnixNs() {
			return false
		}
	}
	return true
}

// signing is the newest usable version whose time as primary has come, and the generation that it is of.
func (k *keyring) signing(now time.Time) (*pb.KeyVersion, uint64, error) {
	k.mu.Lock()
	defer k.mu.Unlock()
	version := chooseKey(k.versions, k.primary, now.UnixNano())
	if version == nil {
		return nil, k.generation, local("no-signing-key", "%s has no key to sign with.", k.source)
	}
	return version, k.generation, nil
}

func chooseKey(versions []*pb.KeyVersion, primary string, now int64) *pb.KeyVersion {
	var best, named *pb.KeyVersion
	for _, one := range versions {
		if one.GetRevoked() {
			continue
		}
		if one.GetVersion() == primary {
			named = one
		}
		ended := one.GetNotAfterUnixNs() != 0 && one.GetNotAfterUnixNs() <= now
		if ended || one.GetNotBeforeUnixNs() > now || one.GetPrimaryFromUnixNs() > now {
			continue
		}
		if best == nil || one.GetPrimaryFromUnixNs() > best.GetPrimaryFromUnixNs() {
			best = one
		}
	}
	if best == nil {
		// A producer whose clock is behind sees no primary yet; then Signer's own choice counts.
		return named
	}
	return best
}

// refused asks Signer because a key of that generation was refused; it tells whether there is something newer now.
func (k *keyring) refused(ctx context.Context, generation uint64) bool {
	k.asking.Lock()
	defer k.asking.Unlock()
	k.mu.Lock()
	due := k.generation == generation && time.Since(k.pressed) >= askAtMostEvery
	if due {
		k.pressed = time.Now()
	}
	k.mu.Unlock()
	if due {
		_ = k.ask(ctx) // the keys that are there go on; Shield is the judge of them
	}
	k.mu.Lock()
	defer k.mu.Unlock()
	return k.generation != generation
}

// newsWithin tells whether the keys changed so recently that Shield may not have them yet.
func (k *keyring) newsWithin(span time.Duration) bool {
	k.mu.Lock()
	defer k.mu.Unlock()
	return time.Since(k.changed) < span
}

func (k *keyring) follow(ctx context.Context) {
	for {
		k.mu.Lock()
		// Only ever sooner: a fleet that was started in one minute must not ask in one minute for ever.
		wait := time.Duration(float64(k.pollAfter) * (0.9 + 0.1*rand.Float64()))
		k.mu.Unlock()
		select {
		case <-ctx.Done():
			return
		case <-time.After(wait):
		}
		if err := k.fetch(ctx); err != nil {
			k.mu.Lock()
			k.pollAfter = 2 * time.Second
			k.mu.Unlock()
		}
	}
}
