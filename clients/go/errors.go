package snavio

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"
)

// Error is the refusal of a whole call. Refused commands are no errors but outcomes.
type Error struct {
	// Status is gRPC's code.
	Status codes.Code
	// Reason is a stable word such as "certificate-expired"; empty where gRPC itself failed.
	Reason string
	// Taxonomy is the mailbox's code, such as "E_SATURATED".
	Taxonomy string
	// RetryAfter is the mesh's hint; zero where it gave none.
	RetryAfter time.Duration
	// Message is one sentence for people.
	Message string
	signer  string
}

func (e *Error) Error() string {
	if e.Reason == "" {
		return fmt.Sprintf("%s: %s", e.Status, e.Message)
	}
	return fmt.Sprintf("%s: %s", e.Reason, e.Message)
}

// Retryable tells whether the same call may pass later without anybody changing a rule.
func (e *Error) Retryable() bool {
	switch e.Status {
	case codes.Unavailable:
		return true
	case codes.ResourceExhausted:
		// Without a reason it is gRPC's refusal of a message that is too large, which stays too large.
		return e.Reason != ""
	default:
		return false
	}
}

// ReasonOf is the reason of an *Error or *EnvelopeError, and empty for any other error.
func ReasonOf(err error) string {
	var unbelievable *EnvelopeError
	if errors.As(err, &unbelievable) {
		return strings.ReplaceAll(string(unbelievable.Fault), "_", "-")
	}
	var refused *Error
	if errors.As(err, &refused) {
		return refused.Reason
	}
	return ""
}

func errorOf(err error, trailer metadata.MD) error {
	if err == nil {
		return nil
	}
	told, ok := status.FromError(err)
	if !ok {
		return err
	}
	first := func(key string) string {
		if values := trailer.Get(key); len(values) > 0 {
			return values[0]
		}
		return ""
	}
	refused := &Error{
		Status: told.Code(), Reason: first("snavio-reason"), Taxonomy: first("snavio-code"),
		Message: told.Message(), signer: first("snavio-signer"),
	}
	if ms, err := strconv.ParseUint(first("snavio-retry-after-ms"), 10, 31); err == nil {
		refused.RetryAfter = time.Duration(ms) * time.Millisecond
	}
	return refused
}

func local(reason, format string, arguments ...any) error {
	return &Error{Status: codes.FailedPrecondition, Reason: reason, Message: fmt.Sprintf(format, arguments...)}
}
