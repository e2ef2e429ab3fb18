//! Messages that come by themselves and not as signed commands: read, checked, and written as stored runs.
//!
//! Strict as everything that reads bytes from outside: a field that is unknown, twice or in another order than its
//! number's is refused, with one sentence about the message that it stands in.

use super::command::{is_content_type, is_traceparent, is_uuid};
use super::crypto::{blake3_digest, uuid_text, uuid7};
use super::replay::Fingerprints;
use super::timestamp;
use super::wire::{Field, Fields, Malformed, bytes_field_len, put_bytes, put_number};

pub const MAX_MESSAGES: usize = 1000;
/// What a frame of 1 MiB has room for, beside what describes the message.
pub const MAX_PAYLOAD_BYTES: usize = (1 << 20) - (4 << 10);
pub const MAX_KEY_BYTES: usize = 128;
pub const MAX_ATTRS: usize = 32;
pub const MAX_ATTR_NAME_BYTES: usize = 64;
pub const MAX_ATTR_VALUE_BYTES: usize = 1024;
pub const MAX_CONTENT_BYTES: usize = 64;
/// Of a key, in milliseconds.
pub const REPLAY_MS: std::ops::RangeInclusive<u32> = 1000..=604_800_000;
/// Before `idem_content` in what is compared, where a command has its name; no name has this character.
const CONTENT: &[u8] = b"\0";
pub const LEASED_RUN: u32 = 5;
pub const COMMAND: u32 = 5;

/// Refusal of a request: the number of the message at fault, if there is one, and a sentence about it.
#[derive(Debug, PartialEq, Eq)]
pub struct MessageRefused {
    pub index: Option<usize>,
    pub reason: &'static str,
    pub sentence: &'static str,
}

impl From<Malformed> for MessageRefused {
    fn from(_: Malformed) -> Self {
        whole("malformed", "The request cannot be read.")
    }
}

pub fn whole(reason: &'static str, sentence: &'static str) -> MessageRefused {
    MessageRefused { index: None, reason, sentence }
}

/// Sender, topic and time of a request.
pub struct Sender<'a> {
    pub topic: &'a str,
    /// The source of the run.
    pub source: &'a str,
    pub cert_serial: &'a str,
    /// The scope of the idempotency keys.
    pub scope: &'a str,
    pub now_unix_ns: i64,
}

/// Messages that can be stored as one batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct MessageRow {
    pub shard: u32,
    pub delay_ms: u32,
    /// How long their keys are known; 0 for the topic's replay window.
    pub replay_ms: u32,
    pub runs: Vec<u8>,
    /// A column per message if they have keys, see `replay`; otherwise empty.
    pub keys: Vec<u8>,
    /// Their numbers in the request.
    pub indices: Vec<u32>,
}

#[derive(Default)]
pub struct NewMessage<'a> {
    payload: &'a [u8],
    idem_key: &'a str,
    attrs: Vec<(&'a str, &'a str)>,
    partition_key: &'a str,
    content_type: &'a str,
    traceparent: &'a str,
    corr_id: &'a str,
    /// As the sender made it; empty if it made none.
    payload_hash: &'a [u8],
    pub replay_ms: u32,
    idem_content: &'a [u8],
    pub delay_ms: u32,
}

impl NewMessage<'_> {
    pub fn keyed(&self) -> bool {
        !self.idem_key.is_empty()
    }

    /// The shard of a topic that it belongs to.
    pub fn shard(&self, topic: &str, shards: u32) -> u32 {
        shard_of(if self.partition_key.is_empty() { topic } else { self.partition_key }, shards)
    }

    /// Appends its column, see `replay`.
    pub fn put_column(&self, fingerprints: &mut Fingerprints<'_>, out: &mut Vec<u8>) {
        let (name, content) =
            if self.idem_content.is_empty() { (&[][..], self.payload) } else { (CONTENT, self.idem_content) };
        fingerprints.put(out, self.idem_key.as_bytes(), name, content);
    }
}

/// The topic of a request, so that its rules can be looked up.
pub fn request_topic(request: &[u8]) -> Result<&str, MessageRefused> {
    let mut fields = Fields::new(request);
    match fields.next()? {
        Some(field) if field.number == 1 => Ok(field.text()?),
        _ => Err(whole("topic", "The request names no topic.")),
    }
}

/// Rows for the messages of a SendRequest, in order within each shard.
pub fn read_new_messages(
    request: &[u8],
    sender: &Sender<'_>,
    secret: &[u8; 32],
    shards: u32,
) -> Result<Vec<MessageRow>, MessageRefused> {
    let mut fields = Fields::new(request);
    let mut messages = Vec::new();
    let mut last = 0;
    while let Some(field) = fields.next()? {
        match (field.number, last) {
            (1, 0) => last = 1,
            (2, 1 | 2) => {
                last = 2;
                let index = messages.len();
                if index == MAX_MESSAGES {
                    return Err(whole("too-many", "A request has at most 1000 messages."));
                }
                let message = read_new_message(field.bytes()?)
                    .map_err(|(reason, sentence)| MessageRefused { index: Some(index), reason, sentence })?;
                messages.push(message);
            }
            _ => return Err(Malformed.into()),
        }
    }
    if messages.is_empty() {
        return Err(whole("empty", "The request has no messages."));
    }
    sort(&messages, sender, secret, shards)
}

pub type Fault = (&'static str, &'static str);
pub const UNREADABLE: Fault =
    ("malformed", "The message cannot be read: a field is unknown, repeated or out of order.");

pub fn read_new_message(bytes: &[u8]) -> Result<NewMessage<'_>, Fault> {
    let mut message = NewMessage::default();
    let mut fields = Fields::new(bytes);
    let mut last = 0;
    while let Some(field) = fields.next().map_err(|_| UNREADABLE)? {
        if field.number < last || (field.number == last && field.number != 3) {
            return Err(UNREADABLE);
        }
        last = field.number;
        put_field(&mut message, &field).map_err(|_| UNREADABLE)?;
    }
    check(&mut message)?;
    Ok(message)
}

fn put_field<'a>(message: &mut NewMessage<'a>, field: &Field<'a>) -> Result<(), Malformed> {
    match field.number {
        1 => message.payload = field.bytes()?,
        2 => message.idem_key = field.text()?,
        3 => message.attrs.push(read_attr(field.bytes()?)?),
        4 => message.partition_key = field.text()?,
        5 => message.delay_ms = u32::try_from(field.varint()?).map_err(|_| Malformed)?,
        6 => message.content_type = field.text()?,
        7 => message.traceparent = field.text()?,
        8 => message.corr_id = field.text()?,
        9 => message.payload_hash = field.bytes()?,
        10 => message.replay_ms = u32::try_from(field.varint()?).map_err(|_| Malformed)?,
        11 => message.idem_content = field.bytes()?,
        _ => return Err(Malformed),
    }
    Ok(())
}

fn read_attr(entry: &[u8]) -> Result<(&str, &str), Malformed> {
    let (mut name, mut value) = ("", "");
    let mut fields = Fields::new(entry);
    let mut last = 0;
    while let Some(field) = fields.next()? {
        match (field.number, last) {
            (1, 0) => name = field.text()?,
            (2, 0 | 1) => value = field.text()?,
            _ => return Err(Malformed),
        }
        last = field.number;
    }
    Ok((name, value))
}

fn check(message: &mut NewMessage<'_>) -> Result<(), Fault> {
    let visible =
        |text: &str| text.len() <= MAX_KEY_BYTES && text.bytes().all(|byte| byte.is_ascii_graphic());
    if message.payload.len() > MAX_PAYLOAD_BYTES {
        return Err(("oversized", "A payload has at most 1044480 bytes."));
    }
    if !visible(message.idem_key) {
        return Err(("idem-key", "An idem_key is at most 128 visible ASCII characters."));
    }
    if message.replay_ms != 0 && !(message.keyed() && REPLAY_MS.contains(&message.replay_ms)) {
        return Err(("replay-ms", "replay_ms is 1000 to 604800000, of a message with an idem_key."));
    }
    if !message.idem_content.is_empty()
        && (!message.keyed() || message.idem_content.len() > MAX_CONTENT_BYTES)
    {
        return Err(("idem-content", "idem_content has at most 64 bytes, of a message with an idem_key."));
    }
    if !visible(message.partition_key) {
        return Err(("partition-key", "A partition_key is at most 128 visible ASCII characters."));
    }
    if message.attrs.len() > MAX_ATTRS {
        return Err(("attrs", "A message has at most 32 attributes."));
    }
    if !message.attrs.iter().all(|(name, value)| is_attr_name(name) && value.len() <= MAX_ATTR_VALUE_BYTES) {
        return Err((
            "attrs",
            "An attribute's name is 1 to 64 of a-z 0-9 . _ -, its value at most 1024 bytes.",
        ));
    }
    message.attrs.sort_unstable();
    if message.attrs.windows(2).any(|pair| pair[0].0 == pair[1].0) {
        return Err(("attrs", "An attribute stands twice."));
    }
    // These tell what the mailbox knows itself.
    if message.attrs.iter().any(|(name, _)| name.starts_with("snavio.") || RESERVED.contains(name)) {
        return Err((
            "attrs",
            "Attributes named snavio.*, content-type and traceparent are the mailbox's own.",
        ));
    }
    if !message.content_type.is_empty() && !is_content_type(message.content_type.as_bytes()) {
        return Err(("content-type", "content_type is not a media type."));
    }
    if !message.traceparent.is_empty() && !is_traceparent(message.traceparent.as_bytes()) {
        return Err(("traceparent", "traceparent is not a W3C trace context."));
    }
    let version_seven = |id: &str| is_uuid(id.as_bytes()) && id.as_bytes().get(14) == Some(&b'7');
    if !message.corr_id.is_empty() && !version_seven(message.corr_id) {
        return Err(("corr-id", "corr_id is not a UUID of version 7 in lower case."));
    }
    if !message.payload_hash.is_empty() && message.payload_hash != blake3_digest(message.payload) {
        return Err(("integrity", "The payload is not what its payload_hash says."));
    }
    Ok(())
}

pub const RESERVED: [&str; 2] = ["content-type", "traceparent"];

fn is_attr_name(name: &str) -> bool {
    let fits = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || b"._-".contains(&byte);
    (1..=MAX_ATTR_NAME_BYTES).contains(&name.len()) && name.bytes().all(fits)
}

/// The shard of a topic that a key belongs to; the same for ever.
pub fn shard_of(key: &str, shards: u32) -> u32 {
    if shards < 2 {
        return 0;
    }
    let hash = blake3::hash(key.as_bytes());
    let head: [u8; 8] = std::array::from_fn(|at| hash.as_bytes()[at]);
    (u64::from_le_bytes(head) % u64::from(shards)) as u32
}

fn sort(
    messages: &[NewMessage<'_>],
    sender: &Sender<'_>,
    secret: &[u8; 32],
    shards: u32,
) -> Result<Vec<MessageRow>, MessageRefused> {
    let mut fingerprints = Fingerprints::new(secret, sender.topic, sender.scope);
    let mut rows: Vec<(MessageRow, bool, Vec<u8>)> = Vec::new();
    for (index, message) in messages.iter().enumerate() {
        let shard = message.shard(sender.topic, shards);
        let keyed = message.keyed();
        // A row has one shard, one delay and one window, and all of it keys or none. Only the last row of a shard is added to:
        // within a shard, what came first is stored first.
        let last = rows.iter_mut().rev().find(|(row, ..)| row.shard == shard);
        let row = match last {
            Some(row)
                if row.0.delay_ms == message.delay_ms
                    && row.1 == keyed
                    && row.0.replay_ms == message.replay_ms =>
            {
                row
            }
            _ => {
                let (delay_ms, replay_ms) = (message.delay_ms, message.replay_ms);
                let row = MessageRow { shard, delay_ms, replay_ms, ..MessageRow::default() };
                rows.push((row, keyed, head_of(sender)));
                let at = rows.len() - 1;
                &mut rows[at]
            }
        };
        let command = write(message, sender).map_err(|_| whole("no-randomness", "No id could be made."))?;
        put_bytes(&mut row.2, COMMAND, &command);
        row.0.indices.push(index as u32);
        if keyed {
            message.put_column(&mut fingerprints, &mut row.0.keys);
        }
    }
    let finish = |(mut row, _, body): (MessageRow, bool, Vec<u8>)| {
        row.runs = Vec::with_capacity(bytes_field_len(body.len()));
        put_bytes(&mut row.runs, LEASED_RUN, &body);
        row
    };
    Ok(rows.into_iter().map(finish).collect())
}

pub fn head_of(sender: &Sender<'_>) -> Vec<u8> {
    let mut head = Vec::new();
    put_bytes(&mut head, 1, sender.source.as_bytes());
    if !sender.cert_serial.is_empty() {
        put_bytes(&mut head, 3, sender.cert_serial.as_bytes());
    }
    put_number(&mut head, 4, sender.now_unix_ns as u64);
    head
}

/// As a command's fields, with those of a message behind them; `leased_batches` reads both.
pub fn write(message: &NewMessage<'_>, sender: &Sender<'_>) -> Result<Vec<u8>, getrandom::Error> {
    let mut out = Vec::with_capacity(message.payload.len() + 160);
    if message.corr_id.is_empty() {
        put_bytes(&mut out, 1, uuid_text(&uuid7()?).as_bytes());
    } else {
        put_bytes(&mut out, 1, message.corr_id.as_bytes());
    }
    put_bytes(&mut out, 2, &timestamp::format(sender.now_unix_ns));
    if !message.content_type.is_empty() {
        put_bytes(&mut out, 9, message.content_type.as_bytes());
    }
    put_bytes(&mut out, 10, message.payload);
    if !message.traceparent.is_empty() {
        put_bytes(&mut out, 11, message.traceparent.as_bytes());
    }
    put_bytes(&mut out, 13, message.idem_key.as_bytes());
    for (name, value) in &message.attrs {
        let mut entry = Vec::with_capacity(name.len() + value.len() + 6);
        put_bytes(&mut entry, 1, name.as_bytes());
        put_bytes(&mut entry, 2, value.as_bytes());
        put_bytes(&mut out, 14, &entry);
    }
    if !message.payload_hash.is_empty() {
        put_bytes(&mut out, 15, message.payload_hash);
    }
    Ok(out)
}

#[cfg(test)]
mod tests {
    use super::super::testing::mangled;
    use super::super::wire::put_varint;
    use super::*;

    const SENDER: Sender<'_> = Sender {
        topic: "acme/own/mail",
        source: "acme/shop",
        cert_serial: "ab",
        scope: "acme",
        now_unix_ns: 1_700_000_000_000_000_000,
    };

    fn message(payload: &[u8], key: &str, partition: &str) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, payload);
        for (field, text) in [(2, key), (4, partition)] {
            if !text.is_empty() {
                put_bytes(&mut out, field, text.as_bytes());
            }
        }
        out
    }

    fn request(messages: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, SENDER.topic.as_bytes());
        messages.iter().for_each(|message| put_bytes(&mut out, 2, message));
        out
    }

    fn open(request: &[u8], shards: u32) -> Result<Vec<MessageRow>, MessageRefused> {
        read_new_messages(request, &SENDER, &[1; 32], shards)
    }

    #[test]
    fn rows_keep_the_order_of_their_shard_and_keys_only_where_there_are_some() {
        let messages: Vec<Vec<u8>> = [("k1", "a"), ("k2", "a"), ("", "a"), ("k3", "b"), ("k4", "a")]
            .map(|(k, p)| message(b"x", k, p))
            .into();
        let rows = open(&request(&messages), 1).unwrap();
        let told: Vec<_> = rows.iter().map(|row| (row.indices.clone(), row.keys.len() / 32)).collect();
        assert_eq!(told, [(vec![0, 1], 2), (vec![2], 0), (vec![3, 4], 2)]);
        for row in open(&request(&messages), 8).unwrap() {
            assert!(row.indices.windows(2).all(|pair| pair[0] < pair[1]) && row.shard < 8);
        }
        assert_eq!(request_topic(&request(&messages)), Ok(SENDER.topic));
    }

    #[test]
    fn the_shard_of_a_key_never_changes() {
        assert_eq!(
            (shard_of("acme/own/mail", 16), shard_of("user-1", 16), shard_of("user-2", 16)),
            (8, 13, 15)
        );
        assert_eq!((shard_of("x", 0), shard_of("x", 1)), (0, 0));
    }

    #[test]
    fn what_is_unknown_twice_or_too_large_is_refused_by_its_number() {
        let good = message(b"x", "k", "");
        let mut unknown = good.clone();
        put_bytes(&mut unknown, 12, b"?");
        let mut twice = good.clone();
        put_bytes(&mut twice, 2, b"k");
        let large = message(&vec![0; MAX_PAYLOAD_BYTES + 1], "", "");
        for (bad, reason) in [(unknown, "malformed"), (twice, "malformed"), (large, "oversized")] {
            let refused = open(&request(&[good.clone(), bad]), 1).unwrap_err();
            assert_eq!((refused.index, refused.reason), (Some(1), reason));
        }
        let mut attr = message(b"x", "", "");
        put_varint(&mut attr, 3 << 3 | 2);
        put_varint(&mut attr, 10);
        put_bytes(&mut attr, 1, b"snavio.x");
        assert_eq!(open(&request(&[attr]), 1).unwrap_err().reason, "attrs");
        assert_eq!(open(&request(&[]), 1).unwrap_err().reason, "empty");
        assert_eq!(open(&request(&vec![good; 1001]), 1).unwrap_err().reason, "too-many");
    }

    #[test]
    fn keys_of_another_window_are_in_a_row_of_their_own_and_content_takes_the_payloads_place() {
        let with = |payload: &[u8], key: &str, replay_ms: u64, content: &[u8]| {
            let mut one = message(payload, key, "");
            if replay_ms > 0 {
                put_number(&mut one, 10, replay_ms);
            }
            if !content.is_empty() {
                put_bytes(&mut one, 11, content);
            }
            one
        };
        let rows = open(
            &request(&[
                with(b"x", "a", 0, b""),
                with(b"x", "b", 2000, b""),
                with(b"y", "c", 2000, b"same"),
                with(b"z", "c", 2000, b"same"),
                with(b"same", "c", 2000, b""),
            ]),
            1,
        )
        .unwrap();
        assert_eq!(
            rows.iter().map(|row| (row.replay_ms, row.indices.len())).collect::<Vec<_>>(),
            [(0, 1), (2000, 4)]
        );
        let columns: Vec<&[u8]> = rows[1].keys.chunks(32).collect();
        assert_eq!(columns[1], columns[2], "the content is compared, not the payload");
        assert_eq!(columns[1][..16], columns[3][..16]);
        assert_ne!(columns[1][16..24], columns[3][16..24], "a payload is not another's content");
        for (bad, reason) in [
            (with(b"x", "", 2000, b""), "replay-ms"),
            (with(b"x", "k", 999, b""), "replay-ms"),
            (with(b"x", "k", 604_800_001, b""), "replay-ms"),
            (with(b"x", "", 0, b"c"), "idem-content"),
            (with(b"x", "k", 0, &[0; 65]), "idem-content"),
        ] {
            assert_eq!(open(&request(&[bad]), 1).unwrap_err().reason, reason);
        }
    }

    #[test]
    fn payload_that_is_not_what_its_hash_says_is_refused() {
        let hashed = |payload: &[u8], hash: &[u8]| {
            let mut one = message(payload, "", "");
            put_bytes(&mut one, 9, hash);
            open(&request(&[message(b"", "", ""), one]), 1)
        };
        let hash = blake3_digest(b"payload");
        let rows = hashed(b"payload", &hash).unwrap();
        assert!(rows[0].runs.windows(32).any(|part| part == hash));
        assert!(hashed(b"payload", b"").is_ok());
        for (payload, hash) in [(&b"paylobd"[..], &hash[..]), (b"payload", &hash[1..]), (b"", &hash)] {
            let refused = hashed(payload, hash).unwrap_err();
            assert_eq!((refused.index, refused.reason), (Some(1), "integrity"));
        }
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for frame in mangled(&request(&[message(b"payload", "key", "user"), message(b"", "", "")])) {
            let _ = request_topic(&frame);
            let _ = open(&frame, 4);
        }
    }
}
