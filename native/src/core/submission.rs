//! A producer's frame: which batch it is, and where its commands are.
//!
//! It must never look into a command: one that is bad is refused alone, and only a bad frame is refused whole.

use super::command::split_field;
use super::verdict;
use super::wire::{Fields, Malformed};

/// The limits of a producer's batch.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    pub max_batch_bytes: usize,
    pub max_batch_commands: usize,
    pub max_payload_bytes: usize,
}

/// A Submission, opened: where its commands are.
#[derive(Default)]
pub(super) struct Frame<'a> {
    pub batch_seq: u64,
    pub budget_ms: u32,
    /// The frame that the commands are stretches of.
    pub bytes: &'a [u8],
    pub commands: Vec<&'a [u8]>,
}

impl<'a> Frame<'a> {
    /// Keeps what was read when it fails, so that the refusal can name the batch.
    pub fn read(&mut self, submission: &'a [u8], limits: &Limits) -> Result<(), u8> {
        if submission.len() <= limits.max_batch_bytes {
            return self.read_fields(submission, limits);
        }
        // Producers write the header first; nothing else of an oversized frame is looked at.
        if let Ok(Some(field)) = Fields::new(submission).next()
            && field.number == 2
            && let Ok(header) = field.bytes()
        {
            self.read_header(header).unwrap_or_default();
        }
        Err(verdict::OVERSIZED)
    }

    fn read_fields(&mut self, submission: &'a [u8], limits: &Limits) -> Result<(), u8> {
        self.bytes = submission;
        let mut headed = false;
        let mut rest = submission;
        while !rest.is_empty() {
            let (number, body, after) = split_field(rest).map_err(|Malformed| verdict::MALFORMED)?;
            rest = after;
            match number {
                2 if !headed => {
                    headed = true;
                    self.read_header(body).map_err(|Malformed| verdict::MALFORMED)?;
                }
                3 if self.commands.len() >= limits.max_batch_commands => return Err(verdict::OVERSIZED),
                3 => {
                    if self.commands.is_empty() {
                        let likely = submission.len() / (body.len() + 3) + 1;
                        self.commands.reserve_exact(likely.min(limits.max_batch_commands));
                    }
                    self.commands.push(body);
                }
                _ => return Err(verdict::MALFORMED),
            }
        }
        Ok(())
    }

    fn read_header(&mut self, header: &[u8]) -> Result<(), Malformed> {
        let mut fields = Fields::new(header);
        let mut seen = 0u32;
        while let Some(field) = fields.next()? {
            let number = field.varint()?;
            if field.number > 2 || seen & (1 << field.number) != 0 {
                return Err(Malformed);
            }
            seen |= 1 << field.number;
            match field.number {
                1 => self.batch_seq = number,
                _ => self.budget_ms = u32::try_from(number).map_err(|_| Malformed)?,
            }
        }
        Ok(())
    }
}

/// Number and size of a Submission of which nothing else is looked at; why it is no batch, otherwise.
pub fn measure(submission: &[u8], limits: &Limits) -> Result<(u64, usize), u8> {
    let mut frame = Frame::default();
    frame.read(submission, limits)?;
    Ok((frame.batch_seq, frame.commands.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    const LIMITS: Limits = Limits { max_batch_bytes: 40, max_batch_commands: 2, max_payload_bytes: 10 };

    #[test]
    fn header_may_stand_anywhere_but_once() {
        let mut frame = Frame::default();
        assert_eq!(frame.read(b"\x1a\x01a\x12\x04\x08\x07\x10\x09\x1a\x00", &LIMITS), Ok(()));
        assert_eq!((frame.batch_seq, frame.budget_ms), (7, 9));
        assert_eq!(frame.commands, [&b"a"[..], b""]);
        assert_eq!(Frame::default().read(b"\x12\x00\x12\x00", &LIMITS), Err(verdict::MALFORMED));
    }

    #[test]
    fn a_refused_frame_still_names_its_batch() {
        for body in [&b"\x1a\x00\x1a\x00\x1a\x00"[..], &[0x1a; 60]] {
            let mut frame = Frame::default();
            let input = [&b"\x12\x02\x08\x07"[..], body].concat();
            assert_eq!((frame.read(&input, &LIMITS), frame.batch_seq), (Err(verdict::OVERSIZED), 7));
        }
    }

    #[test]
    fn a_budget_past_32_bits_is_malformed() {
        let input = b"\x12\x06\x10\x80\x80\x80\x80\x10";
        assert_eq!(Frame::default().read(input, &LIMITS), Err(verdict::MALFORMED));
    }
}
