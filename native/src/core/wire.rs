//! A field walk over protobuf bytes: bounded, allocation-free, and stricter than a protobuf library.
//!
//! It must never read past its input, panic, or accept two encodings of one length: an attacker who can
//! spell the same message twice can make two parsers disagree about it.

/// Error of bytes that are not a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Malformed;

/// A field's value; this wire uses no other types.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    Varint(u64),
    Fixed64(u64),
    Bytes(&'a [u8]),
}

/// One field with the bytes it came from (tag included), so that it can be forwarded untouched.
#[derive(Clone, Copy, Debug)]
pub struct Field<'a> {
    pub number: u32,
    pub value: Value<'a>,
    pub raw: &'a [u8],
}

impl<'a> Field<'a> {
    pub fn bytes(&self) -> Result<&'a [u8], Malformed> {
        match self.value {
            Value::Bytes(bytes) => Ok(bytes),
            _ => Err(Malformed),
        }
    }

    pub fn varint(&self) -> Result<u64, Malformed> {
        match self.value {
            Value::Varint(number) => Ok(number),
            _ => Err(Malformed),
        }
    }

    pub fn double(&self) -> Result<f64, Malformed> {
        match self.value {
            Value::Fixed64(bits) => Ok(f64::from_bits(bits)),
            _ => Err(Malformed),
        }
    }

    pub fn text(&self) -> Result<&'a str, Malformed> {
        std::str::from_utf8(self.bytes()?).map_err(|_| Malformed)
    }
}

/// Walks the fields of one message, in order.
pub struct Fields<'a> {
    input: &'a [u8],
    at: usize,
}

impl<'a> Fields<'a> {
    pub fn new(input: &'a [u8]) -> Self {
        Self { input, at: 0 }
    }

    /// The next field, or `None` at the end.
    #[inline]
    pub fn next(&mut self) -> Result<Option<Field<'a>>, Malformed> {
        if self.at >= self.input.len() {
            return Ok(None);
        }
        let start = self.at;
        let tag = self.read_varint()?;
        let number = u32::try_from(tag >> 3).map_err(|_| Malformed)?;
        if number == 0 {
            return Err(Malformed);
        }
        let value = match tag & 7 {
            0 => Value::Varint(self.read_varint()?),
            1 => {
                let end = self.at.checked_add(8).ok_or(Malformed)?;
                let raw = self.input.get(self.at..end).ok_or(Malformed)?;
                self.at = end;
                Value::Fixed64(u64::from_le_bytes(raw.try_into().map_err(|_| Malformed)?))
            }
            2 => {
                let length = usize::try_from(self.read_varint()?).map_err(|_| Malformed)?;
                let end = self.at.checked_add(length).ok_or(Malformed)?;
                let raw = self.input.get(self.at..end).ok_or(Malformed)?;
                self.at = end;
                Value::Bytes(raw)
            }
            _ => return Err(Malformed),
        };
        Ok(Some(Field { number, value, raw: &self.input[start..self.at] }))
    }

    #[inline(always)]
    fn read_varint(&mut self) -> Result<u64, Malformed> {
        // Nearly every tag and most lengths are one byte.
        match self.input.get(self.at) {
            Some(byte) if *byte < 0x80 => {
                self.at += 1;
                Ok(u64::from(*byte))
            }
            _ => self.read_long_varint(),
        }
    }

    fn read_long_varint(&mut self) -> Result<u64, Malformed> {
        let mut number = 0u64;
        for shift in 0..10 {
            let byte = *self.input.get(self.at).ok_or(Malformed)?;
            self.at += 1;
            if shift == 9 && byte > 1 {
                return Err(Malformed);
            }
            number |= u64::from(byte & 0x7f) << (7 * shift);
            if byte < 0x80 {
                // An over-long spelling (a last byte of zero) says the same number in other bytes.
                if byte == 0 && shift > 0 {
                    return Err(Malformed);
                }
                return Ok(number);
            }
        }
        Err(Malformed)
    }
}

/// Bytes that `number` takes as a varint.
#[inline]
pub fn varint_len(number: u64) -> usize {
    (64 - (number | 1).leading_zeros() as usize).div_ceil(7)
}

#[inline]
pub fn put_varint(out: &mut Vec<u8>, mut number: u64) {
    while number >= 0x80 {
        out.push((number as u8) | 0x80);
        number >>= 7;
    }
    out.push(number as u8);
}

/// Writes a varint field; proto3 leaves zeros out.
#[inline]
pub fn put_number(out: &mut Vec<u8>, field: u32, number: u64) {
    if number != 0 {
        put_varint(out, u64::from(field) << 3);
        put_varint(out, number);
    }
}

/// Writes a length-delimited field, even an empty one.
#[inline]
pub fn put_bytes(out: &mut Vec<u8>, field: u32, bytes: &[u8]) {
    put_varint(out, u64::from(field) << 3 | 2);
    put_varint(out, bytes.len() as u64);
    out.extend_from_slice(bytes);
}

/// Bytes that `put_bytes` writes for a body of `length`; for fields numbered up to 15.
#[inline]
pub fn bytes_field_len(length: usize) -> usize {
    1 + varint_len(length as u64) + length
}
