//! Splits a SendBatch into runs of one command each, for queues that hold one entry per command.
//!
//! A single-command run names its source, so that it can be read without anything around it; the command's bytes are
//! copied and never rewritten.

use super::frames::{Command, FrameRefused, Limits, Span, Walk, read_frame, read_run};
use super::leased_batches::{Received, open_run};
use super::verdict::{MALFORMED, OVERSIZED};
use super::wire::{Fields, Malformed};

/// One command of a topic.
#[derive(Debug, PartialEq, Eq)]
pub struct SplitCommand<'a> {
    pub source: &'a str,
    /// The sender's id.
    pub id: &'a str,
    /// A serialised Run with this command alone.
    pub run: Vec<u8>,
}

/// The commands for one topic, in the order of their numbers in the batch.
#[derive(Debug, PartialEq, Eq)]
pub struct SplitTopic<'a> {
    pub topic: &'a str,
    /// Each (source, id) is to be stored once.
    pub once: bool,
    pub commands: Vec<SplitCommand<'a>>,
}

/// Opens the `topic` fields of a SendBatch; commands are numbered across topics, in order.
pub fn split_batch<'a>(body: &'a [u8], limits: &Limits) -> Result<Vec<SplitTopic<'a>>, FrameRefused> {
    let mut topics = Vec::new();
    let mut count = 0;
    let (_, outcome) = read_frame(body, limits, |entry| {
        let topic = split_topic(body, entry, limits.max_batch_commands - count)?;
        count += topic.commands.len();
        topics.push(topic);
        Ok(())
    });
    outcome.map(|()| topics)
}

fn split_topic(body: &[u8], entry: Span, most: usize) -> Result<SplitTopic<'_>, FrameRefused> {
    let mut topic = SplitTopic { topic: "", once: false, commands: Vec::new() };
    let mut walk = Walk::new(body, entry);
    while let Some(placed) = walk.next()? {
        match placed.field.number {
            1 if topic.topic.is_empty() => topic.topic = utf8(placed.body.of(body))?,
            2 if !topic.topic.is_empty() => {
                placed.field.bytes()?;
                let (head, mut commands) = read_run(body, placed.body)?;
                let source = utf8(head.source.of(body))?;
                while let Some(Command { raw, body: command }) = commands.next()? {
                    if topic.commands.len() == most {
                        return Err(FrameRefused(OVERSIZED));
                    }
                    let run = [head.head.of(body), raw.of(body)].concat();
                    topic.commands.push(SplitCommand { source, id: id_of(command.of(body))?, run });
                }
            }
            3 => topic.once = placed.field.varint()? == 1,
            // For how long is the mailbox's matter; elsewhere Slow has claimed the ids.
            4 => {
                placed.field.varint()?;
            }
            _ => return Err(FrameRefused(MALFORMED)),
        }
    }
    if topic.topic.is_empty() { Err(FrameRefused(MALFORMED)) } else { Ok(topic) }
}

fn utf8(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

fn id_of(command: &[u8]) -> Result<&str, Malformed> {
    let mut fields = Fields::new(command);
    while let Some(field) = fields.next()? {
        if field.number == 1 {
            let Ok(id) = std::str::from_utf8(field.bytes()?) else { return Err(Malformed) };
            return Ok(id);
        }
    }
    Err(Malformed)
}

/// Reads a single-command run; anything but a run with exactly one command is refused.
pub fn read_single(run: &[u8]) -> Result<Received<'_>, Malformed> {
    let end = u32::try_from(run.len()).map_err(|_| Malformed)?;
    let mut messages = Vec::new();
    open_run(run, Span { start: 0, end }, Received::default(), &mut |message| {
        messages.push(message);
        Ok(())
    })?;
    match messages.as_slice() {
        [message] => Ok(message.clone()),
        _ => Err(Malformed),
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::{command, mangled, run};
    use super::super::wire::put_bytes;
    use super::*;

    fn body() -> Vec<u8> {
        let mut out = Vec::new();
        for (topic, once) in [("acme/bot", false), ("acme/pay", true)] {
            let mut entry = Vec::new();
            put_bytes(&mut entry, 1, topic.as_bytes());
            put_bytes(&mut entry, 2, &run("acme/shop", &[command("bot", "say"), command("bot", "go")]));
            put_bytes(&mut entry, 2, &run("zeta/shop", &[command("bot", "hop")]));
            if once {
                entry.extend([3 << 3, 1]);
            }
            put_bytes(&mut out, 3, &entry);
        }
        out
    }

    #[test]
    fn every_command_becomes_a_run_that_says_who_sent_it() {
        let body = body();
        let topics = split_batch(&body, &Limits::MESH).unwrap();
        assert_eq!(
            topics.iter().map(|topic| (topic.topic, topic.once)).collect::<Vec<_>>(),
            [("acme/bot", false), ("acme/pay", true)]
        );
        let told: Vec<_> = topics[0]
            .commands
            .iter()
            .map(|command| read_single(&command.run).map(|message| (message.source, message.name)).unwrap())
            .collect();
        assert_eq!(told, [("acme/shop", "say"), ("acme/shop", "go"), ("zeta/shop", "hop")]);
        assert_eq!(topics[0].commands[2].source, "zeta/shop");
    }

    #[test]
    fn a_single_run_holds_one_command() {
        assert_eq!(read_single(&run("acme/a", &[])), Err(Malformed));
        assert_eq!(
            read_single(&run("acme/a", &[command("bot", "say"), command("bot", "go")])),
            Err(Malformed)
        );
        assert_eq!(read_single(b""), Err(Malformed));
    }

    #[test]
    fn too_many_commands_are_refused_whole() {
        let limits = Limits { max_batch_commands: 5, ..Limits::MESH };
        assert_eq!(split_batch(&body(), &limits), Err(FrameRefused(OVERSIZED)));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for frame in mangled(&body()) {
            for topic in split_batch(&frame, &Limits::MESH).into_iter().flatten() {
                for command in topic.commands {
                    let _ = read_single(&command.run);
                }
            }
        }
    }
}
