//! Frames leased messages with their hashes, and reads what a consumer received, message by message.
//!
//! The mesh checked all of this on the way in: bytes that do not parse here were damaged since, and are refused whole.
//! A message that parses and does not match its hashes is marked, and never passes as verified.

use super::envelope::ChainHasher;
use super::frames::{Command, Span, Walk, read_run};
use super::wire::{Fields, Malformed, Value, put_bytes, put_number};

/// Messages of one stored batch are numbered below this, so that `batch_id * 1024 + number` is unique.
const MESSAGES_PER_BATCH: u64 = 1024;

/// One message.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Received<'a> {
    pub msg_id: u64,
    pub attempt: u32,
    pub stored_unix_ns: i64,
    pub source: &'a str,
    pub admitted_unix_ns: i64,
    pub id: &'a str,
    pub timestamp: &'a str,
    pub target: &'a str,
    pub name: &'a str,
    pub content_type: &'a str,
    pub payload: &'a [u8],
    pub traceparent: &'a str,
    /// Of a message that came by Send; a command has none.
    pub idem_key: &'a str,
    pub attrs: Vec<(&'a str, &'a str)>,
    pub shard: u32,
    /// BLAKE3 of the payload as its sender made it; a command has none.
    sender_hash: Option<&'a [u8]>,
    pub integrity: Integrity,
}

/// Outcome of comparing a message with its hashes.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Integrity {
    /// The mailbox sent no hashes, or nothing was compared.
    #[default]
    Unverified = 0,
    /// Payload hash and chain value are what the mailbox sent.
    Verified = 1,
    /// They are not: the message changed on its way from the mailbox.
    NotAsStored = 2,
    /// The payload is what the mailbox stored, and not what its sender hashed.
    NotAsSent = 3,
}

/// One place in the mailbox's store, as a LeasedBatch names it.
pub struct Leased<'a> {
    pub topic: &'a str,
    pub batch_id: u64,
    /// Number of the first message within its batch.
    pub first: u32,
    pub attempt: u32,
    pub stored_unix_ns: i64,
    pub shard: u32,
}

/// A `ReceiveResponse.batch` field with stored runs and the hashes of their messages.
///
/// Runs that are no commands get no hashes: their reader refuses them by itself.
pub fn frame_leased_batch(leased: &Leased<'_>, runs: &[u8]) -> Vec<u8> {
    let mut body = Vec::with_capacity(runs.len() + runs.len() / 2 + 64);
    let numbers = [leased.batch_id, leased.first.into(), leased.attempt.into(), leased.stored_unix_ns as u64];
    for (field, number) in (1..).zip(numbers) {
        if number != 0 {
            put_number(&mut body, field, number);
        }
    }
    body.extend_from_slice(runs);
    if leased.shard != 0 {
        put_number(&mut body, 6, leased.shard.into());
    }
    if let Ok((payload_hashes, chains)) = hash_runs(leased, runs) {
        put_bytes(&mut body, PAYLOAD_HASH, &payload_hashes);
        put_bytes(&mut body, HASH_CHAIN, &chains);
    }
    let mut out = Vec::with_capacity(body.len() + 8);
    put_bytes(&mut out, RESPONSE_BATCH, &body);
    out
}

const RESPONSE_BATCH: u32 = 2;
const PAYLOAD_HASH: u32 = 7;
const HASH_CHAIN: u32 = 8;
const HASH_BYTES: usize = 32;

/// Payload hash and chain value of each message of stored runs.
fn hash_runs(leased: &Leased<'_>, runs: &[u8]) -> Result<(Vec<u8>, Vec<u8>), Malformed> {
    let end = u32::try_from(runs.len()).map_err(|_| Malformed)?;
    let mut walk = Walk::new(runs, Span { start: 0, end });
    let mut hasher = ChainHasher::new(leased.topic, leased.stored_unix_ns);
    let (mut payload_hashes, mut chains) = (Vec::new(), Vec::new());
    while let Some(placed) = walk.next()? {
        placed.field.bytes()?;
        open_run(runs, placed.body, Received::default(), &mut |message| {
            let payload_hash = blake3::hash(message.payload);
            payload_hashes.extend_from_slice(payload_hash.as_bytes());
            chains.extend_from_slice(hasher.chain_of(&message, &payload_hash).as_bytes());
            Ok(())
        })?;
    }
    Ok((payload_hashes, chains))
}

/// Compares each message with its hashes; `payload_hashes` and `chains` have one for each, or are both absent.
fn verify(
    messages: &mut [Received<'_>],
    topic: &str,
    payload_hashes: Option<&[u8]>,
    chains: Option<&[u8]>,
) -> Result<(), Malformed> {
    let hashes = match (payload_hashes, chains) {
        (None, None) => None,
        (Some(payload_hashes), Some(chains)) => Some((columns(payload_hashes)?, columns(chains)?)),
        _ => return Err(Malformed),
    };
    if hashes.is_some_and(|(left, right)| left.len() != messages.len() || right.len() != messages.len()) {
        return Err(Malformed);
    }
    let stored_unix_ns = messages.first().map_or(0, |message| message.stored_unix_ns);
    let mut hasher = ChainHasher::new(topic, stored_unix_ns);
    for (number, message) in messages.iter_mut().enumerate() {
        if hashes.is_none() && message.sender_hash.is_none() {
            continue;
        }
        let payload_hash = blake3::hash(message.payload);
        let stored = hashes.map(|(payload_hashes, chains)| {
            payload_hashes.get(number) == Some(payload_hash.as_bytes())
                && chains.get(number) == Some(hasher.chain_of(message, &payload_hash).as_bytes())
        });
        let sent = message.sender_hash.is_none_or(|hash| hash == payload_hash.as_bytes());
        message.integrity = match (stored, sent) {
            // Before the sender's hash: what changed on its way is whole in the mailbox, and comes again.
            (Some(false), _) => Integrity::NotAsStored,
            (_, false) => Integrity::NotAsSent,
            (Some(true), true) => Integrity::Verified,
            (None, true) => Integrity::Unverified,
        };
    }
    Ok(())
}

fn columns(hashes: &[u8]) -> Result<&[[u8; HASH_BYTES]], Malformed> {
    match hashes.as_chunks() {
        (hashes, []) => Ok(hashes),
        _ => Err(Malformed),
    }
}

/// (boot epoch, messages) of a ReceiveResponse; with a topic, each is compared with its hashes.
pub fn read_leased_batches<'a>(
    response: &'a [u8],
    topic: Option<&str>,
) -> Result<(u64, Vec<Received<'a>>), Malformed> {
    let end = u32::try_from(response.len()).map_err(|_| Malformed)?;
    let mut walk = Walk::new(response, Span { start: 0, end });
    let mut boot_epoch = 0;
    let mut messages = Vec::new();
    let mut last = 0;
    while let Some(placed) = walk.next()? {
        let number = placed.field.number;
        if number < last || (number == last && (1..5).contains(&number) && number != 2) {
            return Err(Malformed);
        }
        last = number;
        match (number, placed.field.value) {
            (1, Value::Fixed64(epoch)) => boot_epoch = epoch,
            (2, Value::Bytes(_)) => read_leased_batch(response, placed.body, topic, &mut messages)?,
            (3 | 4, Value::Varint(_)) => {}
            // A later mailbox may say more; a consumer of today must go on.
            (5.., _) => {}
            _ => return Err(Malformed),
        }
    }
    Ok((boot_epoch, messages))
}

fn read_leased_batch<'a>(
    response: &'a [u8],
    batch: Span,
    topic: Option<&str>,
    messages: &mut Vec<Received<'a>>,
) -> Result<(), Malformed> {
    let mut walk = Walk::new(response, batch);
    let (mut batch_id, mut number, mut last) = (0u64, 0u64, 0);
    let mut common = Received::default();
    let (mut payload_hashes, mut chains) = (None, None);
    let first = messages.len();
    while let Some(placed) = walk.next()? {
        let field = &placed.field;
        if field.number < last || (field.number == last && field.number <= HASH_CHAIN && field.number != 5) {
            return Err(Malformed);
        }
        last = field.number;
        match field.number {
            1 => batch_id = field.varint()?,
            2 => number = field.varint()?,
            3 => common.attempt = u32::try_from(field.varint()?).map_err(|_| Malformed)?,
            4 => common.stored_unix_ns = field.varint()? as i64,
            5 => {
                field.bytes()?;
                open_run(response, placed.body, common.clone(), &mut |message| {
                    if number >= MESSAGES_PER_BATCH {
                        return Err(Malformed);
                    }
                    let base = batch_id.checked_mul(MESSAGES_PER_BATCH).ok_or(Malformed)?;
                    messages.push(Received { msg_id: base + number, ..message });
                    number += 1;
                    Ok(())
                })?;
            }
            6 => common.shard = u32::try_from(field.varint()?).map_err(|_| Malformed)?,
            PAYLOAD_HASH => payload_hashes = Some(field.bytes()?),
            HASH_CHAIN => chains = Some(field.bytes()?),
            // As in the response.
            number if number > HASH_CHAIN => {}
            _ => return Err(Malformed),
        }
    }
    let messages = &mut messages[first..];
    messages.iter_mut().for_each(|message| message.shard = common.shard);
    topic.map_or(Ok(()), |topic| verify(messages, topic, payload_hashes, chains))
}

/// Parses the commands of one run; the fields in `common` are repeated with each.
pub fn open_run<'a>(
    frame: &'a [u8],
    run: Span,
    common: Received<'a>,
    take: &mut impl FnMut(Received<'a>) -> Result<(), Malformed>,
) -> Result<(), Malformed> {
    let (head, mut commands) = read_run(frame, run)?;
    let source = std::str::from_utf8(head.source.of(frame)).map_err(|_| Malformed)?;
    let common = Received { source, admitted_unix_ns: head.admitted_unix_ns, ..common };
    while let Some(Command { body, .. }) = commands.next()? {
        take(open_command(body.of(frame), common.clone())?)?;
    }
    Ok(())
}

fn open_command<'a>(command: &'a [u8], mut message: Received<'a>) -> Result<Received<'a>, Malformed> {
    let mut fields = Fields::new(command);
    let mut seen = 0u16;
    while let Some(field) = fields.next()? {
        if field.number > 15 {
            // Of a later version: Shield refuses fields that it does not know, so the mesh that stored it knew this one.
            continue;
        }
        if seen & (1 << field.number) != 0 && field.number != 14 {
            return Err(Malformed);
        }
        seen |= 1 << field.number;
        match field.number {
            1 => message.id = field.text()?,
            2 => message.timestamp = field.text()?,
            7 => message.target = field.text()?,
            8 => message.name = field.text()?,
            9 => message.content_type = field.text()?,
            10 => message.payload = field.bytes()?,
            11 => message.traceparent = field.text()?,
            12 => return Err(Malformed),
            13 => message.idem_key = field.text()?,
            14 => message.attrs.push(open_attr(field.bytes()?)?),
            15 => message.sender_hash = Some(field.bytes()?),
            _ => {
                field.bytes()?;
            }
        }
    }
    Ok(message)
}

fn open_attr(entry: &[u8]) -> Result<(&str, &str), Malformed> {
    let mut fields = Fields::new(entry);
    match (fields.next()?, fields.next()?, fields.next()?) {
        (Some(name), Some(value), None) if (name.number, value.number) == (1, 2) => {
            Ok((name.text()?, value.text()?))
        }
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{command, mangled, run};
    use super::*;

    fn response(batch_id: u64, first: u64, runs: &[(&str, Vec<Vec<u8>>)]) -> Vec<u8> {
        let mut batch = Vec::new();
        put_number(&mut batch, 1, batch_id);
        put_number(&mut batch, 2, first);
        put_number(&mut batch, 3, 2);
        for (source, commands) in runs {
            put_bytes(&mut batch, 5, &run(source, commands));
        }
        let mut out = vec![1 << 3 | 1];
        out.extend_from_slice(&77u64.to_le_bytes());
        put_bytes(&mut out, 2, &batch);
        out
    }

    #[test]
    fn messages_are_numbered_across_runs() {
        let runs = [
            ("acme/a", vec![command("bot", "say"), command("bot", "go")]),
            ("acme/b", vec![command("x", "y")]),
        ];
        let response = response(3, 10, &runs);
        let (epoch, messages) = read_leased_batches(&response, None).unwrap();
        assert_eq!(epoch, 77);
        let told: Vec<_> =
            messages.iter().map(|one| (one.msg_id, one.attempt, one.source, one.name)).collect();
        assert_eq!(told, [(3082, 2, "acme/a", "say"), (3083, 2, "acme/a", "go"), (3084, 2, "acme/b", "y")]);
    }

    #[test]
    fn numbers_that_would_collide_are_malformed() {
        let runs = [("acme/a", vec![command("bot", "say"); 2])];
        assert!(read_leased_batches(&response(3, 1022, &runs), None).is_ok());
        assert_eq!(read_leased_batches(&response(3, 1023, &runs), None), Err(Malformed));
        assert_eq!(read_leased_batches(&response(u64::MAX / 1024 + 1, 0, &runs), None), Err(Malformed));
        assert!(read_leased_batches(&response(u64::MAX / 1024, 1022, &runs), None).is_ok());
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for frame in mangled(&response(3, 0, &[("acme/a", vec![command("bot", "say"); 2])])) {
            let _ = read_leased_batches(&frame, Some(TOPIC));
        }
    }

    const TOPIC: &str = "acme/bot";

    fn leased(topic: &str, attempt: u32, shard: u32) -> Leased<'_> {
        Leased { topic, batch_id: 3, first: 0, attempt, stored_unix_ns: 1_700_000_000_123_456_789, shard }
    }

    fn runs() -> Vec<u8> {
        let mut message = Vec::new();
        put_bytes(&mut message, 1, b"0193a1b2-c3d4-7e5f-8a9b-0c1d2e3f4a5b");
        put_bytes(&mut message, 10, b"payload");
        put_bytes(&mut message, 13, b"key");
        let mut entry = Vec::new();
        put_bytes(&mut entry, 1, b"colour");
        put_bytes(&mut entry, 2, b"blue");
        put_bytes(&mut message, 14, &entry);
        put_bytes(&mut message, 15, blake3::hash(b"payload").as_bytes());
        let mut runs = Vec::new();
        put_bytes(&mut runs, 5, &run("acme/a", &[command("bot", "say"), command("bot", "go")]));
        put_bytes(&mut runs, 5, &run("acme/b", &[message]));
        runs
    }

    fn outcomes(response: &[u8], topic: &str) -> Result<Vec<Integrity>, Malformed> {
        let (_, messages) = read_leased_batches(response, Some(topic))?;
        Ok(messages.iter().map(|message| message.integrity).collect())
    }

    #[test]
    fn what_the_mailbox_framed_is_verified_whatever_changes_on_delivery() {
        for (attempt, shard) in [(1, 0), (2, 0), (9, 7)] {
            let response = frame_leased_batch(&leased(TOPIC, attempt, shard), &runs());
            assert_eq!(outcomes(&response, TOPIC), Ok(vec![Integrity::Verified; 3]));
        }
        let hashes = |attempt, shard| {
            let framed = frame_leased_batch(&leased(TOPIC, attempt, shard), &runs());
            framed[framed.len() - 2 * 3 * HASH_BYTES - 2..].to_vec()
        };
        assert_eq!(hashes(1, 0), hashes(3, 5));
        let other = frame_leased_batch(&leased("acme/other", 1, 0), &runs());
        assert_eq!(outcomes(&other, TOPIC), Ok(vec![Integrity::NotAsStored; 3]));
    }

    #[test]
    fn no_flipped_bit_of_a_message_or_a_hash_passes_as_verified() {
        let response = frame_leased_batch(&leased(TOPIC, 1, 0), &runs());
        let (_, whole) = read_leased_batches(&response, Some(TOPIC)).unwrap();
        for bit in 0..response.len() * 8 {
            let mut flipped = response.clone();
            flipped[bit / 8] ^= 1 << (bit % 8);
            let Ok((_, messages)) = read_leased_batches(&flipped, Some(TOPIC)) else { continue };
            for (message, good) in messages.iter().zip(&whole) {
                if message.integrity != Integrity::Verified {
                    continue;
                }
                // Ids, attempts and times of admission are the receipt's and not the content's.
                let content = |one: &Received<'_>| {
                    (one.source.to_owned(), one.name.to_owned(), one.payload.to_vec(), one.attrs.len())
                };
                assert_eq!(content(message), content(good), "bit {bit}");
            }
        }
    }

    #[test]
    fn fields_of_a_later_mailbox_are_passed_over() {
        let mut message = command("bot", "say");
        put_bytes(&mut message, 16, b"later");
        put_number(&mut message, 17, 1);
        let mut batch = Vec::new();
        put_number(&mut batch, 1, 3);
        put_bytes(&mut batch, 5, &run("acme/a", &[message]));
        put_bytes(&mut batch, 9, b"later");
        put_bytes(&mut batch, 9, b"and once more");
        put_number(&mut batch, 10, 1);
        let mut response = vec![1 << 3 | 1];
        response.extend_from_slice(&77u64.to_le_bytes());
        put_bytes(&mut response, 2, &batch);
        put_number(&mut response, 5, 1);
        put_bytes(&mut response, 6, b"later");
        let (_, messages) = read_leased_batches(&response, None).unwrap();
        assert_eq!(messages.iter().map(|one| (one.msg_id, one.name)).collect::<Vec<_>>(), [(3072, "say")]);
    }

    #[test]
    fn hashes_are_all_there_or_all_absent() {
        let runs = runs();
        let mut bare = Vec::new();
        put_bytes(&mut bare, 2, &runs);
        assert_eq!(
            outcomes(&bare, TOPIC),
            Ok(vec![Integrity::Unverified; 3]),
            "a mailbox that sends none is not a fault"
        );
        for (field, length) in [(7, 96), (8, 96), (7, 95)] {
            let mut body = runs.clone();
            put_bytes(&mut body, field, &vec![0; length]);
            let mut response = Vec::new();
            put_bytes(&mut response, 2, &body);
            assert_eq!(outcomes(&response, TOPIC), Err(Malformed));
        }
        for lengths in [[64, 96], [96, 64], [128, 128], [0, 0]] {
            let mut body = runs.clone();
            put_bytes(&mut body, 7, &vec![0; lengths[0]]);
            put_bytes(&mut body, 8, &vec![0; lengths[1]]);
            let mut response = Vec::new();
            put_bytes(&mut response, 2, &body);
            assert_eq!(outcomes(&response, TOPIC), Err(Malformed));
        }
    }

    #[test]
    fn what_changed_before_it_was_stored_is_not_as_sent() {
        let at = |runs: &[u8]| runs.windows(7).rposition(|part| part == b"payload").unwrap();
        let mut stored = runs();
        let place = at(&stored);
        stored[place] ^= 1;
        let response = frame_leased_batch(&leased(TOPIC, 1, 0), &stored);
        let expected = [Integrity::Verified, Integrity::Verified, Integrity::NotAsSent];
        assert_eq!(outcomes(&response, TOPIC), Ok(expected.to_vec()));
        let mut underway = frame_leased_batch(&leased(TOPIC, 1, 0), &runs());
        let place = at(&underway);
        underway[place] ^= 1;
        let expected = [Integrity::Verified, Integrity::Verified, Integrity::NotAsStored];
        assert_eq!(outcomes(&underway, TOPIC), Ok(expected.to_vec()));
    }
}
