//! Finds the commands of a batch whose trace is sampled; few of them, by one look at the end of each command.
//!
//! It must cost nothing where no trace is sampled, and it keeps a bounded number however many are: those whose trace id
//! is smallest, so that every service of the mesh keeps the same ones.

use super::command::{Command, is_traceparent};

/// Kept of one batch.
pub const MOST: usize = 32;
/// Field 11 with 55 bytes. It is the last field: protobuf's libraries write fields in order of their numbers.
const HEAD: [u8; 2] = [0x5a, 55];
const LENGTH: usize = 57;

/// What a span says of a command.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Traced {
    pub index: u32,
    pub traceparent: String,
    pub id: String,
    pub timestamp: String,
    pub target: String,
    pub name: String,
}

#[derive(Debug, Default)]
pub struct Sampled {
    found: Vec<Traced>,
}

impl Sampled {
    /// Keeps the command with this number if its trace is sampled.
    #[inline]
    pub fn look(&mut self, index: u32, command: &[u8]) {
        if let Some(start) = command.len().checked_sub(LENGTH)
            && command[start..].starts_with(&HEAD)
            && command.last().is_some_and(|flags| SAMPLED.contains(flags))
        {
            self.keep(index, command);
        }
    }

    #[cold]
    fn keep(&mut self, index: u32, command: &[u8]) {
        let Ok(parsed) = Command::parse(command) else { return };
        if !is_traceparent(parsed.traceparent) {
            return;
        }
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        let traced = Traced {
            index,
            traceparent: text(parsed.traceparent),
            id: text(parsed.id),
            timestamp: text(parsed.timestamp),
            target: text(parsed.target),
            name: text(parsed.name),
        };
        if self.found.len() < MOST {
            self.found.push(traced);
        } else if let Some(last) = self.found.iter_mut().max_by(|left, right| left.rank().cmp(right.rank()))
            && traced.rank() < last.rank()
        {
            *last = traced;
        }
    }

    pub fn found(&self) -> &[Traced] {
        &self.found
    }
}

impl Traced {
    /// The random part of the trace id; the same order at every service.
    fn rank(&self) -> &str {
        self.traceparent.get(21..35).unwrap_or_default()
    }
}

/// Last digits of flags with the sampled bit.
const SAMPLED: &[u8] = b"13579bdf";

#[cfg(test)]
mod tests {
    use super::super::wire::put_bytes;
    use super::*;

    fn command(trace: &str) -> Vec<u8> {
        let mut out = Vec::new();
        for (field, text) in [(1, "an-id"), (2, "2026-01-01T00:00:00Z"), (7, "bot"), (8, "notify")] {
            put_bytes(&mut out, field, text.as_bytes());
        }
        put_bytes(&mut out, 10, b"payload");
        if !trace.is_empty() {
            put_bytes(&mut out, 11, trace.as_bytes());
        }
        out
    }

    fn trace(number: u32, flags: &str) -> String {
        format!("00-{:032x}-00f067aa0ba902b7-{flags}", number + 1)
    }

    #[test]
    fn only_sampled_traces_are_kept_with_what_a_span_says() {
        let mut sampled = Sampled::default();
        for (index, given) in
            ["", &trace(1, "00"), &trace(2, "01"), &trace(3, "02"), &trace(4, "03"), "zz"].iter().enumerate()
        {
            sampled.look(index as u32, &command(given));
        }
        let kept: Vec<u32> = sampled.found().iter().map(|traced| traced.index).collect();
        assert_eq!(kept, [2, 4]);
        let first = &sampled.found()[0];
        assert_eq!((&*first.traceparent, &*first.id), (&*trace(2, "01"), "an-id"));
        assert_eq!((&*first.target, &*first.name), ("bot", "notify"));
        assert_eq!(first.timestamp, "2026-01-01T00:00:00Z");
    }

    #[test]
    fn of_too_many_those_with_the_smallest_trace_are_kept_in_whatever_order_they_come() {
        let (mut forward, mut backward) = (Sampled::default(), Sampled::default());
        for number in 0..1000 {
            forward.look(number, &command(&trace(number, "01")));
            backward.look(999 - number, &command(&trace(999 - number, "01")));
        }
        let kept = |sampled: &Sampled| {
            let mut indices: Vec<u32> = sampled.found().iter().map(|traced| traced.index).collect();
            indices.sort_unstable();
            indices
        };
        assert_eq!(kept(&forward), (0..MOST as u32).collect::<Vec<_>>());
        assert_eq!(kept(&forward), kept(&backward));
    }

    #[test]
    fn no_bytes_make_it_panic() {
        for length in 0..80 {
            let mut sampled = Sampled::default();
            sampled.look(0, &vec![b'1'; length]);
            let mut tail = vec![0u8; length];
            tail.extend_from_slice(&HEAD);
            tail.extend_from_slice(&[b'1'; 55]);
            sampled.look(0, &tail);
            assert!(sampled.found().is_empty());
        }
    }
}
