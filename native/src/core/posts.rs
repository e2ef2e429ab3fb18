//! Takes a SendBatch apart into letters: one command each, with all that says who sent it.
//!
//! For queues that hold one entry per command. A letter is a serialised Run with a single command, so that it can
//! be read without anything around it; the command's bytes are copied and never rewritten.

use super::frames::{Command, FrameRefused, Limits, Span, Walk, read_frame, read_run};
use super::parcels::{Received, open_run};
use super::verdict::{MALFORMED, OVERSIZED};
use super::wire::{Fields, Malformed};

/// One command of a topic.
#[derive(Debug, PartialEq, Eq)]
pub struct Letter<'a> {
    pub source: &'a str,
    /// The sender's id.
    pub id: &'a str,
    /// A serialised Run with this command alone.
    pub run: Vec<u8>,
}

/// The letters for one topic, in the order of their numbers in the batch.
#[derive(Debug, PartialEq, Eq)]
pub struct Post<'a> {
    pub topic: &'a str,
    /// Each (source, id) is to be stored once.
    pub once: bool,
    pub letters: Vec<Letter<'a>>,
}

/// Opens the `topic` fields of a SendBatch; letters are numbered across posts, in order.
pub fn open_posts<'a>(body: &'a [u8], limits: &Limits) -> Result<Vec<Post<'a>>, FrameRefused> {
    let mut posts = Vec::new();
    let mut count = 0;
    let (_, outcome) = read_frame(body, limits, |entry| {
        let post = open_post(body, entry, limits.max_batch_commands - count)?;
        count += post.letters.len();
        posts.push(post);
        Ok(())
    });
    outcome.map(|()| posts)
}

fn open_post(body: &[u8], entry: Span, most: usize) -> Result<Post<'_>, FrameRefused> {
    let mut post = Post { topic: "", once: false, letters: Vec::new() };
    let mut walk = Walk::new(body, entry);
    while let Some(placed) = walk.next()? {
        match placed.field.number {
            1 if post.topic.is_empty() => post.topic = utf8(placed.body.of(body))?,
            2 if !post.topic.is_empty() => {
                placed.field.bytes()?;
                let (head, mut commands) = read_run(body, placed.body)?;
                let source = utf8(head.source.of(body))?;
                while let Some(Command { raw, body: command }) = commands.next()? {
                    if post.letters.len() == most {
                        return Err(FrameRefused(OVERSIZED));
                    }
                    let run = [head.head.of(body), raw.of(body)].concat();
                    post.letters.push(Letter { source, id: id_of(command.of(body))?, run });
                }
            }
            3 => post.once = placed.field.varint()? == 1,
            // For how long is the mailbox's matter; elsewhere Slow has claimed the ids.
            4 => {
                placed.field.varint()?;
            }
            _ => return Err(FrameRefused(MALFORMED)),
        }
    }
    if post.topic.is_empty() { Err(FrameRefused(MALFORMED)) } else { Ok(post) }
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

/// Reads a letter; anything but a run with exactly one command is refused.
pub fn open_single(letter: &[u8]) -> Result<Received<'_>, Malformed> {
    let end = u32::try_from(letter.len()).map_err(|_| Malformed)?;
    let mut messages = Vec::new();
    open_run(letter, Span { start: 0, end }, Received::default(), &mut |message| {
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
    fn every_command_becomes_a_letter_that_says_who_sent_it() {
        let body = body();
        let posts = open_posts(&body, &Limits::MESH).unwrap();
        assert_eq!(
            posts.iter().map(|post| (post.topic, post.once)).collect::<Vec<_>>(),
            [("acme/bot", false), ("acme/pay", true)]
        );
        let told: Vec<_> = posts[0]
            .letters
            .iter()
            .map(|letter| open_single(&letter.run).map(|message| (message.source, message.name)).unwrap())
            .collect();
        assert_eq!(told, [("acme/shop", "say"), ("acme/shop", "go"), ("zeta/shop", "hop")]);
        assert_eq!(posts[0].letters[2].source, "zeta/shop");
    }

    #[test]
    fn a_letter_holds_one_command() {
        assert_eq!(open_single(&run("acme/a", &[])), Err(Malformed));
        assert_eq!(
            open_single(&run("acme/a", &[command("bot", "say"), command("bot", "go")])),
            Err(Malformed)
        );
        assert_eq!(open_single(b""), Err(Malformed));
    }

    #[test]
    fn too_many_commands_are_refused_whole() {
        let limits = Limits { max_batch_commands: 5, ..Limits::MESH };
        assert_eq!(open_posts(&body(), &limits), Err(FrameRefused(OVERSIZED)));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for frame in mangled(&body()) {
            for post in open_posts(&frame, &Limits::MESH).into_iter().flatten() {
                for letter in post.letters {
                    let _ = open_single(&letter.run);
                }
            }
        }
    }
}
