package snavio

import pb "snavio.local/go/snaviov1"

// Verdict is what became of one command.
type Verdict uint8

// Verdicts that a program asks for by name; docs/protocol.md has all of them.
const (
	Undecided          = Verdict(pb.Verdict_VERDICT_UNSPECIFIED)
	Delivered          = Verdict(pb.Verdict_VERDICT_DELIVERED)
	Duplicate          = Verdict(pb.Verdict_VERDICT_DUPLICATE)
	Malformed          = Verdict(pb.Verdict_VERDICT_MALFORMED)
	Oversized          = Verdict(pb.Verdict_VERDICT_OVERSIZED)
	UnknownKeyVersion  = Verdict(pb.Verdict_VERDICT_UNKNOWN_KEY_VERSION)
	KeyExpired         = Verdict(pb.Verdict_VERDICT_KEY_EXPIRED)
	KeyRevoked         = Verdict(pb.Verdict_VERDICT_KEY_REVOKED)
	WrongAudience      = Verdict(pb.Verdict_VERDICT_WRONG_AUDIENCE)
	Replayed           = Verdict(pb.Verdict_VERDICT_REPLAYED)
	CertificateExpired = Verdict(pb.Verdict_VERDICT_CERTIFICATE_EXPIRED)
	RateLimitExceeded  = Verdict(pb.Verdict_VERDICT_RATE_LIMIT_EXCEEDED)
	ACLDeny            = Verdict(pb.Verdict_VERDICT_ACL_DENY)
	RouteMissing       = Verdict(pb.Verdict_VERDICT_ROUTE_MISSING)
	DeliveryFailure    = Verdict(pb.Verdict_VERDICT_DELIVERY_FAILURE)
	FairnessViolation  = Verdict(pb.Verdict_VERDICT_FAIRNESS_VIOLATION)
	OutcomeUnknown     = Verdict(pb.Verdict_VERDICT_OUTCOME_UNKNOWN)
	Saturated          = Verdict(pb.Verdict_VERDICT_SATURATED)
	Conflict           = Verdict(pb.Verdict_VERDICT_CONFLICT)
	Frozen             = Verdict(pb.Verdict_VERDICT_FROZEN)
)

// Good tells whether the command is durable in its target's queue.
func (v Verdict) Good() bool { return v == Delivered || v == Duplicate }

// Retryable tells whether the same command, signed again, may pass without anybody changing a rule.
func (v Verdict) Retryable() bool {
	switch v {
	case UnknownKeyVersion, KeyExpired, WrongAudience, RateLimitExceeded, DeliveryFailure, FairnessViolation,
		OutcomeUnknown, Saturated:
		return true
	default:
		return false
	}
}

func (v Verdict) keyRefused() bool {
	return v == UnknownKeyVersion || v == KeyExpired || v == KeyRevoked
}

// known turns a code that this program does not know into OutcomeUnknown: none of them may pass for a delivery.
func known(code byte) Verdict {
	if _, ok := pb.Verdict_name[int32(code)]; !ok {
		return OutcomeUnknown
	}
	return Verdict(code)
}

// String is the verdict's stable name, such as "acl-deny".
func (v Verdict) String() string {
	name, ok := pb.Verdict_name[int32(v)]
	if !ok {
		return "unknown"
	}
	if v == Undecided {
		return "undecided"
	}
	word := []byte(name[len("VERDICT_"):])
	for i, letter := range word {
		if letter == '_' {
			word[i] = '-'
		} else if 'A' <= letter && letter <= 'Z' {
			word[i] = letter + 'a' - 'A'
		}
	}
	return string(word)
}
