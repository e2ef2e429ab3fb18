//! Reasons of escalation from Fast to Slow: the wire's EscalationReason.

pub const CACHE_MISS: u8 = 1;
pub const ACL_EXPIRED: u8 = 2;
pub const ROUTE_EXPIRED: u8 = 3;
pub const DEDUPE_REQUIRED: u8 = 4;
pub const TOKEN_REQUIRED: u8 = 5;
pub const WARM_BANNED: u8 = 6;
pub const COLD_ONLY: u8 = 7;
pub const SYNC: u8 = 8;

/// Reasons by number, as telemetry spells them.
pub const REASONS: [&str; 9] = [
    "unspecified",
    "cache_miss",
    "acl_expired",
    "route_expired",
    "dedupe_required",
    "token_required",
    "warm_banned",
    "cold_only",
    "sync",
];
