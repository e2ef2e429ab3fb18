//! One Command: its fields as they stand in the bytes, and whether each keeps to its form.
//!
//! It must never let through a byte that the signature does not pin to one field, and never copy: every field
//! is a slice of the input.

use super::timestamp;
use super::verdict;
use super::wire::{Fields, Malformed};

pub const TYPE: &[u8] = b"snavio.command-sent";
const LAST_FIELD: usize = 12;
const ID: usize = 1;
const TIMESTAMP: usize = 2;
const KIND: usize = 3;
const KEY_VERSION: usize = 4;
const AUDIENCE: usize = 5;
const HMAC: usize = 6;
const TARGET: usize = 7;
const NAME: usize = 8;
const CONTENT_TYPE: usize = 9;
const PAYLOAD: usize = 10;
const TRACEPARENT: usize = 11;
const SOURCE: usize = 12;

const LOWER_OR_DIGIT: u8 = 1;
const LETTER_OR_DIGIT: u8 = 2;
const IN_KEY_VERSION: u8 = 4;
const IN_NAME: u8 = 8;
const IN_TARGET: u8 = 16;
const PRINTABLE: u8 = 32;
const LOWER_HEX: u8 = 64;
const HYPHEN: u8 = 128;

/// The charsets that each byte belongs to, one bit per set.
static SETS: [u8; 256] = sets();

const fn sets() -> [u8; 256] {
    let mut sets = [0u8; 256];
    let mut byte = 0usize;
    while byte < 256 {
        let character = byte as u8;
        let mut of = 0;
        if character.is_ascii_lowercase() || character.is_ascii_digit() {
            of |= LOWER_OR_DIGIT | IN_KEY_VERSION | IN_TARGET;
        }
        if character.is_ascii_alphanumeric() {
            of |= LETTER_OR_DIGIT | IN_NAME;
        }
        match character {
            b'.' | b'-' => of |= IN_KEY_VERSION | IN_NAME | IN_TARGET,
            b'_' => of |= IN_NAME | IN_TARGET,
            b':' => of |= IN_NAME,
            _ => {}
        }
        if character >= 0x20 && character <= 0x7e {
            of |= PRINTABLE;
        }
        if character.is_ascii_digit() || (character >= b'a' && character <= b'f') {
            of |= LOWER_HEX;
        }
        if character == b'-' {
            of |= HYPHEN;
        }
        sets[byte] = of;
        byte += 1;
    }
    sets
}

/// Which set each position of a UUID's text must be in.
static UUID_FORM: [u8; 36] = form([8, 13, 18, 23]);
/// The same for a traceparent; its version is compared on its own.
static TRACEPARENT_FORM: [u8; 55] = form([2, 35, 52, 52]);

const fn form<const N: usize>(hyphens: [usize; 4]) -> [u8; N] {
    let mut form = [LOWER_HEX; N];
    let mut next = 0;
    while next < hyphens.len() {
        form[hyphens[next]] = HYPHEN;
        next += 1;
    }
    form
}

/// A command's fields as sent; empty where absent.
#[derive(Clone, Copy, Debug, Default)]
pub struct Command<'a> {
    pub id: &'a [u8],
    pub timestamp: &'a [u8],
    pub kind: &'a [u8],
    pub key_version: &'a [u8],
    pub audience: &'a [u8],
    pub hmac: &'a [u8],
    pub target: &'a [u8],
    pub name: &'a [u8],
    pub content_type: &'a [u8],
    pub payload: &'a [u8],
    pub traceparent: &'a [u8],
    pub source: Option<&'a [u8]>,
}

impl<'a> Command<'a> {
    /// The fields, or MALFORMED: truncated, unknown or repeated fields, wrong wire types.
    ///
    /// Text is not yet known to be UTF-8: [`Command::check`] sees to it, since whatever passes there is ASCII.
    #[inline]
    pub fn parse(input: &'a [u8]) -> Result<Self, Malformed> {
        let mut slots: [&'a [u8]; LAST_FIELD + 1] = [&[]; LAST_FIELD + 1];
        let mut seen = 0u32;
        let mut rest = input;
        while !rest.is_empty() {
            let (number, body, after) = split_field(rest)?;
            let number = number as usize;
            // Two copies of a field: parsers differ on which of them counts.
            if number == 0 || number > LAST_FIELD || seen & (1 << number) != 0 {
                return Err(Malformed);
            }
            seen |= 1 << number;
            slots[number] = body;
            rest = after;
        }
        Ok(Self {
            id: slots[ID],
            timestamp: slots[TIMESTAMP],
            kind: slots[KIND],
            key_version: slots[KEY_VERSION],
            audience: slots[AUDIENCE],
            hmac: slots[HMAC],
            target: slots[TARGET],
            name: slots[NAME],
            content_type: slots[CONTENT_TYPE],
            payload: slots[PAYLOAD],
            traceparent: slots[TRACEPARENT],
            source: (seen & (1 << SOURCE) != 0).then_some(slots[SOURCE]),
        })
    }

    /// The signed time in nanoseconds since the epoch, or the first fault.
    #[inline]
    pub fn check(&self, max_payload_bytes: usize) -> Result<i64, u8> {
        match self.first_fault(max_payload_bytes) {
            Ok(sent_unix_ns) => Ok(sent_unix_ns),
            // Only here can text be other than ASCII, so only here is it worth asking.
            Err(_) if !self.is_utf8() => Err(verdict::MALFORMED),
            Err(code) => Err(code),
        }
    }

    #[inline]
    fn first_fault(&self, max_payload_bytes: usize) -> Result<i64, u8> {
        if self.source.is_some() {
            return Err(verdict::SOURCE_PRESENT);
        }
        if self.payload.len() > max_payload_bytes {
            return Err(verdict::OVERSIZED);
        }
        if !is_uuid(self.id) {
            return Err(verdict::INVALID_ID);
        }
        let sent_unix_ns = timestamp::parse(self.timestamp).ok_or(verdict::INVALID_TIMESTAMP)?;
        if self.kind != TYPE {
            return Err(verdict::INVALID_TYPE);
        }
        if !is_key_version(self.key_version) {
            return Err(verdict::INVALID_KEY_VERSION);
        }
        if !is_audience(self.audience) {
            return Err(verdict::INVALID_AUDIENCE);
        }
        if self.hmac.len() != super::signing::TAG_LEN {
            return Err(verdict::INVALID_HMAC);
        }
        if !is_target(self.target) {
            return Err(verdict::INVALID_TARGET);
        }
        if !is_name(self.name) {
            return Err(verdict::INVALID_NAME);
        }
        if !is_content_type(self.content_type) {
            return Err(verdict::INVALID_CONTENT_TYPE);
        }
        if !is_traceparent(self.traceparent) {
            return Err(verdict::INVALID_TRACEPARENT);
        }
        Ok(sent_unix_ns)
    }

    fn is_utf8(&self) -> bool {
        [
            self.id,
            self.timestamp,
            self.kind,
            self.key_version,
            self.audience,
            self.target,
            self.name,
            self.content_type,
            self.traceparent,
            self.source.unwrap_or_default(),
        ]
        .iter()
        .all(|text| std::str::from_utf8(text).is_ok())
    }
}

/// The first field's number and body, and what follows it. All fields here are length-delimited.
#[inline]
pub(super) fn split_field(input: &[u8]) -> Result<(u32, &[u8], &[u8]), Malformed> {
    // Nearly every field has its tag in one byte and its length in one or two: no need to walk varints.
    let (tag, length, tail) = match input {
        [tag, length, tail @ ..] if *length < 0x80 => (*tag, usize::from(*length), tail),
        [tag, low, high @ 1..0x80, tail @ ..] => {
            (*tag, usize::from(low & 0x7f) | usize::from(*high) << 7, tail)
        }
        _ => return split_any_field(input),
    };
    if tag & 0x87 != 2 {
        return split_any_field(input);
    }
    let (body, after) = tail.split_at_checked(length).ok_or(Malformed)?;
    Ok((u32::from(tag >> 3), body, after))
}

#[cold]
fn split_any_field(input: &[u8]) -> Result<(u32, &[u8], &[u8]), Malformed> {
    let field = Fields::new(input).next()?.ok_or(Malformed)?;
    let after = input.get(field.raw.len()..).ok_or(Malformed)?;
    Ok((field.number, field.bytes()?, after))
}

#[inline]
fn is_of(text: &[u8], longest: usize, first: u8, rest: u8) -> bool {
    match text {
        [start, ..] if text.len() <= longest => SETS[*start as usize] & first != 0 && all_in(text, rest),
        _ => false,
    }
}

#[inline]
fn all_in(text: &[u8], set: u8) -> bool {
    text.iter().fold(set, |common, byte| common & SETS[*byte as usize]) != 0
}

#[inline]
fn has_form<const N: usize>(text: &[u8; N], form: &[u8; N]) -> bool {
    text.iter().zip(form).fold(true, |good, (byte, set)| good & (SETS[*byte as usize] & set != 0))
}

/// `[a-z0-9][a-z0-9.-]{0,63}`
#[inline]
pub fn is_key_version(text: &[u8]) -> bool {
    is_of(text, 64, LOWER_OR_DIGIT, IN_KEY_VERSION)
}

/// `[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`
#[inline]
pub fn is_audience(text: &[u8]) -> bool {
    is_of(text, 128, LETTER_OR_DIGIT, IN_NAME)
}

/// `[a-z0-9][a-z0-9._-]{0,127}`
#[inline]
pub fn is_target(text: &[u8]) -> bool {
    is_of(text, 128, LOWER_OR_DIGIT, IN_TARGET)
}

/// `[A-Za-z0-9][A-Za-z0-9._:-]{0,127}`
#[inline]
pub fn is_name(text: &[u8]) -> bool {
    is_of(text, 128, LETTER_OR_DIGIT, IN_NAME)
}

/// Empty, or up to 128 printable ASCII characters.
#[inline]
pub fn is_content_type(text: &[u8]) -> bool {
    text.len() <= 128 && all_in(text, PRINTABLE)
}

/// Lower-case text form; never nil.
#[inline]
pub fn is_uuid(text: &[u8]) -> bool {
    let Ok(text) = <&[u8; 36]>::try_from(text) else { return false };
    has_form(text, &UUID_FORM) && text.iter().any(|byte| !matches!(byte, b'0' | b'-'))
}

/// Empty, or W3C trace context version 00 with a trace and a span that are not zero.
#[inline]
pub fn is_traceparent(text: &[u8]) -> bool {
    if text.is_empty() {
        return true;
    }
    let Ok(text) = <&[u8; 55]>::try_from(text) else { return false };
    let not_zero = |id: &[u8]| id.iter().any(|digit| *digit != b'0');
    has_form(text, &TRACEPARENT_FORM)
        && text.starts_with(b"00")
        && not_zero(&text[3..35])
        && not_zero(&text[36..52])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn charsets_hold_for_every_byte() {
        for byte in 0..=255u8 {
            let lower = byte.is_ascii_lowercase() || byte.is_ascii_digit();
            let name = byte.is_ascii_alphanumeric();
            assert_eq!(is_key_version(&[byte]), lower);
            assert_eq!(is_target(&[byte]), lower);
            assert_eq!(is_name(&[byte]), name);
            assert_eq!(is_audience(&[byte]), name);
            assert_eq!(is_key_version(&[b'a', byte]), lower || b".-".contains(&byte));
            assert_eq!(is_target(&[b'a', byte]), lower || b"._-".contains(&byte));
            assert_eq!(is_name(&[b'a', byte]), name || b"._:-".contains(&byte));
            assert_eq!(is_audience(&[b'a', byte]), name || b"._:-".contains(&byte));
            assert_eq!(is_content_type(&[byte]), (0x20..=0x7e).contains(&byte));
        }
    }

    #[test]
    fn lengths_hold() {
        let long = [b'a'; 129];
        assert!(is_key_version(&long[..64]) && !is_key_version(&long[..65]) && !is_key_version(b""));
        for is in [is_audience, is_target, is_name] {
            assert!(is(&long[..128]) && !is(&long) && !is(b""));
        }
        assert!(is_content_type(b"") && is_content_type(&long[..128]) && !is_content_type(&long));
    }

    #[test]
    fn uuids_are_lower_case_and_not_nil() {
        assert!(is_uuid(b"0190a5b2-7c00-7000-8000-00000000000a"));
        for bad in [
            &b"00000000-0000-0000-0000-000000000000"[..],
            b"0190A5B2-7c00-7000-8000-00000000000a",
            b"0190a5b2-7c00-7000-8000-00000000000g",
            b"0190a5b2-7c00-7000-8000-00000000000",
            b"0190a5b27c00-7000-8000-0000-00000000",
            b"{190a5b2-7c00-7000-8000-00000000000}",
            b"",
        ] {
            assert!(!is_uuid(bad));
        }
    }

    #[test]
    fn traceparents_are_of_version_00_with_ids() {
        assert!(is_traceparent(b""));
        assert!(is_traceparent(b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"));
        for bad in [
            &b"01-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"[..],
            b"00-00000000000000000000000000000000-00f067aa0ba902b7-01",
            b"00-4bf92f3577b34da6a3ce929d0e0e4736-0000000000000000-01",
            b"00-4BF92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01",
            b"00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-0",
            b"00-4bf92f3577b34da6a3ce929d0e0e4736_00f067aa0ba902b7-01",
        ] {
            assert!(!is_traceparent(bad));
        }
    }

    #[test]
    fn short_and_long_ways_through_a_field_agree() {
        let mut inputs: Vec<Vec<u8>> = Vec::new();
        for tag in 0..=255u8 {
            for length in [0u8, 1, 2, 0x7f, 0x80, 0x81, 0xff] {
                for next in [0u8, 1, 2, 0x7f, 0x80, 0xff] {
                    inputs.push([&[tag, length, next][..], &[7; 300]].concat());
                    inputs.push(vec![tag, length, next]);
                    inputs.push(vec![tag, length]);
                }
            }
            inputs.push(vec![tag]);
        }
        for input in inputs {
            let short = split_field(&input).ok().filter(|(number, ..)| *number != 0);
            assert_eq!(short, split_any_field(&input).ok(), "{:?}", &input[..input.len().min(4)]);
        }
    }

    #[test]
    fn empty_input_parses_and_fails_on_its_id() {
        let command = Command::parse(b"").unwrap_or_default();
        assert_eq!(command.check(10), Err(verdict::INVALID_ID));
    }

    #[test]
    fn source_outranks_other_faults_but_not_bad_text() {
        let sourced = Command { source: Some(b""), payload: b"0123456789", ..Command::default() };
        assert_eq!(sourced.check(1), Err(verdict::SOURCE_PRESENT));
        let garbled = Command { name: b"\xff", ..sourced };
        assert_eq!(garbled.check(1), Err(verdict::MALFORMED));
    }
}
