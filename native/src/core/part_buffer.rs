//! The body of a batch part, measured and not yet written: stretches of the frame that came in, between bytes of our
//! own.
//!
//! A frame of half a megabyte is copied once per hop, straight to where it leaves from; nothing of a command is ever
//! re-encoded on the way.

use super::frames::Span;
use super::runs::Runs;

/// Bytes of our own and stretches of a frame, in order.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct Pieces {
    own: Vec<u8>,
    /// A stretch, and how many of our own bytes stand before it.
    stretches: Vec<(usize, Span)>,
    stretched: usize,
}

impl Pieces {
    /// Buffer for the bytes that do not come from the frame.
    #[inline]
    pub fn own(&mut self) -> &mut Vec<u8> {
        &mut self.own
    }

    /// Appends a stretch of the frame.
    #[inline]
    pub fn pass(&mut self, stretch: Span) {
        self.stretched += stretch.len();
        self.stretches.push((self.own.len(), stretch));
    }

    pub fn len(&self) -> usize {
        self.own.len() + self.stretched
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out`, which has room for exactly `len` bytes; `frame` is what the stretches are of.
    pub fn write(&self, frame: &[u8], mut out: &mut [u8]) {
        let mut written = 0;
        for (before, stretch) in &self.stretches {
            out = put(out, self.own.get(written..*before).unwrap_or_default());
            out = put(out, stretch.of(frame));
            written = *before;
        }
        put(out, self.own.get(written..).unwrap_or_default());
    }

    pub fn to_vec(&self, frame: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.len()];
        self.write(frame, &mut out);
        out
    }
}

impl From<Vec<u8>> for Pieces {
    fn from(own: Vec<u8>) -> Self {
        Self { own, ..Self::default() }
    }
}

/// The commands of one batch part.
#[derive(Debug)]
pub enum PartBuffer {
    /// Commands that Shield admitted.
    Runs(Runs),
    Pieces(Pieces),
}

impl PartBuffer {
    pub fn len(&self) -> usize {
        match self {
            Self::Runs(runs) => runs.len(),
            Self::Pieces(pieces) => pieces.len(),
        }
    }

    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `out`, which has room for exactly `len` bytes.
    pub fn write(&self, frame: &[u8], out: &mut [u8]) {
        match self {
            Self::Runs(runs) => runs.write(frame, out),
            Self::Pieces(pieces) => pieces.write(frame, out),
        }
    }

    pub fn to_vec(&self, frame: &[u8]) -> Vec<u8> {
        let mut out = vec![0; self.len()];
        self.write(frame, &mut out);
        out
    }
}

/// Copies `bytes` to the start of `out` and returns the rest of it.
#[inline]
pub fn put<'o>(out: &'o mut [u8], bytes: &[u8]) -> &'o mut [u8] {
    match out.split_at_mut_checked(bytes.len()) {
        Some((place, rest)) => {
            place.copy_from_slice(bytes);
            rest
        }
        None => &mut [],
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_come_out_in_the_order_they_went_in() {
        let mut pieces = Pieces::default();
        pieces.pass(Span { start: 4, end: 6 });
        pieces.own().extend_from_slice(b"-");
        pieces.pass(Span { start: 0, end: 2 });
        pieces.pass(Span { start: 2, end: 3 });
        pieces.own().extend_from_slice(b"!");
        assert_eq!(pieces.to_vec(b"abcdef"), b"ef-abc!");
        assert_eq!(pieces.len(), 7);
        assert_eq!(Pieces::from(b"own".to_vec()).to_vec(b""), b"own");
    }

    #[test]
    fn a_frame_that_is_not_theirs_is_no_reason_to_panic() {
        let mut pieces = Pieces::default();
        pieces.pass(Span { start: 4, end: 6 });
        assert_eq!(pieces.to_vec(b"abc"), [0, 0]);
    }
}
