//! Outcomes of a command: the wire's one-byte codes with their stable reason names.
//!
//! Never renumber and never rename: producers and archives keep both.

pub const UNDECIDED: u8 = 0;
pub const DELIVERED: u8 = 1;
pub const DUPLICATE: u8 = 2;
pub const MALFORMED: u8 = 16;
pub const OVERSIZED: u8 = 17;
pub const SOURCE_PRESENT: u8 = 18;
pub const INVALID_ID: u8 = 19;
pub const INVALID_TIMESTAMP: u8 = 20;
pub const INVALID_TYPE: u8 = 21;
pub const INVALID_KEY_VERSION: u8 = 22;
pub const INVALID_AUDIENCE: u8 = 23;
pub const INVALID_HMAC: u8 = 24;
pub const INVALID_TARGET: u8 = 25;
pub const INVALID_NAME: u8 = 26;
pub const INVALID_CONTENT_TYPE: u8 = 27;
pub const INVALID_TRACEPARENT: u8 = 28;
pub const SUSPENDED: u8 = 32;
pub const UNKNOWN_KEY_VERSION: u8 = 33;
pub const KEY_EXPIRED: u8 = 34;
pub const KEY_REVOKED: u8 = 35;
pub const WRONG_AUDIENCE: u8 = 36;
pub const TIMESTAMP_OUTSIDE_WINDOW: u8 = 37;
pub const HMAC_MISMATCH: u8 = 38;
pub const REPLAYED: u8 = 39;
pub const CERTIFICATE_EXPIRED: u8 = 40;
pub const CERTIFICATE_REVOKED: u8 = 41;
pub const RATE_LIMIT_EXCEEDED: u8 = 64;
pub const ACL_DENY: u8 = 65;
pub const ROUTE_MISSING: u8 = 66;
pub const DELIVERY_FAILURE: u8 = 67;
pub const FAIRNESS_VIOLATION: u8 = 68;
pub const OUTCOME_UNKNOWN: u8 = 69;
pub const SATURATED: u8 = 70;
pub const CONFLICT: u8 = 71;
pub const FROZEN: u8 = 72;

/// Every code with the name that people and telemetry see.
pub const NAMES: [(u8, &str); 35] = [
    (UNDECIDED, "undecided"),
    (DELIVERED, "delivered"),
    (DUPLICATE, "duplicate"),
    (MALFORMED, "malformed"),
    (OVERSIZED, "oversized"),
    (SOURCE_PRESENT, "source-present"),
    (INVALID_ID, "invalid-id"),
    (INVALID_TIMESTAMP, "invalid-timestamp"),
    (INVALID_TYPE, "invalid-type"),
    (INVALID_KEY_VERSION, "invalid-key-version"),
    (INVALID_AUDIENCE, "invalid-audience"),
    (INVALID_HMAC, "invalid-hmac"),
    (INVALID_TARGET, "invalid-target"),
    (INVALID_NAME, "invalid-name"),
    (INVALID_CONTENT_TYPE, "invalid-content-type"),
    (INVALID_TRACEPARENT, "invalid-traceparent"),
    (SUSPENDED, "suspended"),
    (UNKNOWN_KEY_VERSION, "unknown-key-version"),
    (KEY_EXPIRED, "key-expired"),
    (KEY_REVOKED, "key-revoked"),
    (WRONG_AUDIENCE, "wrong-audience"),
    (TIMESTAMP_OUTSIDE_WINDOW, "timestamp-outside-window"),
    (HMAC_MISMATCH, "hmac-mismatch"),
    (REPLAYED, "replayed"),
    (CERTIFICATE_EXPIRED, "certificate-expired"),
    (CERTIFICATE_REVOKED, "certificate-revoked"),
    (RATE_LIMIT_EXCEEDED, "rate-limit-exceeded"),
    (ACL_DENY, "acl-deny"),
    (ROUTE_MISSING, "route-missing"),
    (DELIVERY_FAILURE, "delivery-failure"),
    (FAIRNESS_VIOLATION, "fairness-violation"),
    (OUTCOME_UNKNOWN, "outcome-unknown"),
    (SATURATED, "saturated"),
    (CONFLICT, "conflict"),
    (FROZEN, "frozen"),
];

/// The stable name of a code, such as `acl-deny`; `unknown` for a number this version does not know.
pub fn name(code: u8) -> &'static str {
    NAMES.iter().find(|(known, _)| *known == code).map_or("unknown", |(_, name)| name)
}

/// True if the code says that the command was not taken.
#[inline]
pub fn is_refusal(code: u8) -> bool {
    code >= MALFORMED
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_ascend_and_are_distinct() {
        assert!(NAMES.windows(2).all(|pair| pair[0].0 < pair[1].0 && pair[0].1 != pair[1].1));
    }

    #[test]
    fn good_outcomes_are_not_refusals() {
        assert!(!is_refusal(UNDECIDED) && !is_refusal(DELIVERED) && !is_refusal(DUPLICATE));
        assert!(is_refusal(MALFORMED) && is_refusal(CONFLICT));
        assert_eq!(name(ACL_DENY), "acl-deny");
        assert_eq!(name(200), "unknown");
    }
}
