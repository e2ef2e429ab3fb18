//! Opens what a consumer received, message by message.
//!
//! The mesh checked all of this on the way in; whatever does not parse here was damaged since, and is refused whole.

use super::crypto::blake3_digest;
use super::frames::{Command, Span, Walk, read_run};
use super::wire::{Fields, Malformed, Value};

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
    /// Its payload is not what its sender hashed.
    pub damaged: bool,
}

/// (boot epoch, messages) of a ReceiveResponse.
pub fn read_leased_batches(response: &[u8]) -> Result<(u64, Vec<Received<'_>>), Malformed> {
    let end = u32::try_from(response.len()).map_err(|_| Malformed)?;
    let mut walk = Walk::new(response, Span { start: 0, end });
    let mut boot_epoch = 0;
    let mut messages = Vec::new();
    let mut last = 0;
    while let Some(placed) = walk.next()? {
        let number = placed.field.number;
        if number < last || (number == last && number != 2) {
            return Err(Malformed);
        }
        last = number;
        match (number, placed.field.value) {
            (1, Value::Fixed64(epoch)) => boot_epoch = epoch,
            (2, Value::Bytes(_)) => read_leased_batch(response, placed.body, &mut messages)?,
            (3 | 4, Value::Varint(_)) => {}
            _ => return Err(Malformed),
        }
    }
    Ok((boot_epoch, messages))
}

fn read_leased_batch<'a>(
    response: &'a [u8],
    batch: Span,
    messages: &mut Vec<Received<'a>>,
) -> Result<(), Malformed> {
    let mut walk = Walk::new(response, batch);
    let (mut batch_id, mut number, mut last) = (0u64, 0u64, 0);
    let mut common = Received::default();
    let first = messages.len();
    while let Some(placed) = walk.next()? {
        let field = &placed.field;
        if field.number < last || (field.number == last && field.number != 5) {
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
            _ => return Err(Malformed),
        }
    }
    messages[first..].iter_mut().for_each(|message| message.shard = common.shard);
    Ok(())
}

/// Opens the commands of one run; what `common` says of all of them is told with each.
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
    let mut hash = None;
    while let Some(field) = fields.next()? {
        if field.number > 15 || (seen & (1 << field.number) != 0 && field.number != 14) {
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
            15 => hash = Some(field.bytes()?),
            _ => {
                field.bytes()?;
            }
        }
    }
    message.damaged = hash.is_some_and(|hash| hash != blake3_digest(message.payload));
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
    use super::super::wire::{put_bytes, put_number};
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
        let (epoch, messages) = read_leased_batches(&response).unwrap();
        assert_eq!(epoch, 77);
        let told: Vec<_> =
            messages.iter().map(|one| (one.msg_id, one.attempt, one.source, one.name)).collect();
        assert_eq!(told, [(3082, 2, "acme/a", "say"), (3083, 2, "acme/a", "go"), (3084, 2, "acme/b", "y")]);
    }

    #[test]
    fn numbers_that_would_collide_are_malformed() {
        let runs = [("acme/a", vec![command("bot", "say"); 2])];
        assert!(read_leased_batches(&response(3, 1022, &runs)).is_ok());
        assert_eq!(read_leased_batches(&response(3, 1023, &runs)), Err(Malformed));
        assert_eq!(read_leased_batches(&response(u64::MAX / 1024 + 1, 0, &runs)), Err(Malformed));
        assert!(read_leased_batches(&response(u64::MAX / 1024, 1022, &runs)).is_ok());
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for frame in mangled(&response(3, 0, &[("acme/a", vec![command("bot", "say"); 2])])) {
            let _ = read_leased_batches(&frame);
        }
    }
}
