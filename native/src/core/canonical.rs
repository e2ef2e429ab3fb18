//! The one form of a JSON document that signatures are made over (RFC 8785).
//!
//! It must never give two readers two meanings of one signed text: duplicate keys, integers that a double
//! cannot hold, lone surrogates and anything that is not exactly one JSON value are refused, not repaired.

use std::fmt;

use serde::Deserialize;
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};

/// The first integer that a double confuses with its neighbour.
const FIRST_UNSAFE_INTEGER: f64 = 9_007_199_254_740_992.0;
/// ECMAScript writes numbers from here on with an exponent.
const FIRST_WITH_EXPONENT: f64 = 1e21;

/// Error of a document without a canonical form. No message repeats the document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CanonicalError {
    NotUtf8,
    ByteOrderMark,
    DuplicateKey,
    UnsafeInteger,
    NumberTooLarge,
    /// The message of the JSON parser, with line and column. Documents of 128 levels or more end here too.
    NotJson(String),
}

impl fmt::Display for CanonicalError {
    fn fmt(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotUtf8 => to.write_str("The document is not UTF-8."),
            Self::ByteOrderMark => to.write_str("The document starts with a byte order mark."),
            Self::DuplicateKey => to.write_str("An object of the document has the same key twice."),
            Self::UnsafeInteger => to.write_str(
                "An integer of the document is 2^53 or larger, which a double cannot hold exactly.",
            ),
            Self::NumberTooLarge => {
                to.write_str("A number of the document is larger than a double can hold.")
            }
            Self::NotJson(why) => write!(to, "The document is not JSON that we accept: {why}."),
        }
    }
}

impl std::error::Error for CanonicalError {}

/// The canonical bytes of one JSON value.
pub fn canonicalise(document: &[u8]) -> Result<Vec<u8>, CanonicalError> {
    let text = std::str::from_utf8(document).map_err(|_| CanonicalError::NotUtf8)?;
    if text.starts_with('\u{feff}') {
        return Err(CanonicalError::ByteOrderMark);
    }
    let mut reading = Reading { text, at: 0, fault: None };
    let mut parser = serde_json::Deserializer::from_str(text);
    let parsed = Reader(&mut reading).deserialize(&mut parser).and_then(|node| parser.end().map(|()| node));
    match parsed {
        Ok(node) => {
            let mut out = Vec::with_capacity(document.len());
            write_node(&node, &mut out);
            Ok(out)
        }
        Err(error) => Err(reading.fault.unwrap_or_else(|| CanonicalError::NotJson(error.to_string()))),
    }
}

enum Node {
    Null,
    Bool(bool),
    Number(f64),
    Text(String),
    List(Vec<Node>),
    /// In canonical order, without duplicates.
    Object(Vec<(String, Node)>),
}

/// Walks the raw text in step with the parser, to read number literals as they are spelt.
///
/// The parser cannot be asked: it hands over `1e20` and `100000000000000000000`, a double and an integer,
/// as the same number, and its own reading of decimals may be off by one bit.
struct Reading<'t> {
    text: &'t str,
    at: usize,
    fault: Option<CanonicalError>,
}

impl<'t> Reading<'t> {
    /// Moves past the next key, scalar or opening bracket; the literal when that is a number.
    ///
    /// Called once for each of them, in order. The parser has checked everything before it.
    fn step(&mut self) -> Option<&'t str> {
        self.skip_while(|byte| b" \t\r\n,:]}".contains(&byte));
        match self.text.as_bytes().get(self.at)? {
            b'-' | b'0'..=b'9' => {
                let start = self.at;
                self.skip_while(|byte| b"+-.0123456789Ee".contains(&byte));
                return self.text.get(start..self.at);
            }
            b'"' => self.skip_string(),
            b'[' | b'{' => self.at += 1,
            _ => self.skip_while(|byte| byte.is_ascii_lowercase()),
        }
        None
    }

    fn skip_while(&mut self, skipped: impl Fn(u8) -> bool) {
        let rest = self.text.as_bytes().iter().skip(self.at);
        self.at += rest.take_while(|byte| skipped(**byte)).count();
    }

    fn skip_string(&mut self) {
        let mut rest = self.text.as_bytes().iter().enumerate().skip(self.at + 1);
        while let Some((at, byte)) = rest.next() {
            match byte {
                b'"' => {
                    self.at = at + 1;
                    return;
                }
                b'\\' => _ = rest.next(), // What is escaped may be a quote.
                _ => {}
            }
        }
        self.at = self.text.len();
    }
}

fn read_number(literal: &str) -> Result<f64, CanonicalError> {
    let number: f64 = literal
        .parse()
        .map_err(|_| CanonicalError::NotJson("a number is not spelt as JSON wants it".to_owned()))?;
    let integer = !literal.contains(['.', 'e', 'E']);
    // Below 1e21 the canonical form of a large double is an integer too; what we write must be what we accept,
    // or a document could be signed that no verifier reads.
    if number.abs() >= FIRST_UNSAFE_INTEGER && (integer || number.abs() < FIRST_WITH_EXPONENT) {
        return Err(CanonicalError::UnsafeInteger);
    }
    if number.is_finite() { Ok(number) } else { Err(CanonicalError::NumberTooLarge) }
}

struct Reader<'r, 't>(&'r mut Reading<'t>);

impl Reader<'_, '_> {
    fn fail<E: serde::de::Error>(self, fault: CanonicalError) -> E {
        let error = E::custom(&fault);
        self.0.fault = Some(fault);
        error
    }
}

impl<'de> DeserializeSeed<'de> for Reader<'_, '_> {
    type Value = Node;

    fn deserialize<D: Deserializer<'de>>(self, deserializer: D) -> Result<Node, D::Error> {
        let Some(literal) = self.0.step() else {
            return deserializer.deserialize_any(self);
        };
        IgnoredAny::deserialize(deserializer)?; // The parser checks the spelling, we read the value.
        read_number(literal).map(Node::Number).map_err(|fault| self.fail(fault))
    }
}

impl<'de> Visitor<'de> for Reader<'_, '_> {
    type Value = Node;

    fn expecting(&self, to: &mut fmt::Formatter<'_>) -> fmt::Result {
        to.write_str("a JSON value")
    }

    fn visit_unit<E>(self) -> Result<Node, E> {
        Ok(Node::Null)
    }

    fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
        Ok(Node::Bool(value))
    }

    fn visit_str<E>(self, value: &str) -> Result<Node, E> {
        Ok(Node::Text(value.to_owned()))
    }

    fn visit_string<E>(self, value: String) -> Result<Node, E> {
        Ok(Node::Text(value))
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut sequence: A) -> Result<Node, A::Error> {
        let mut nodes = Vec::new();
        while let Some(node) = sequence.next_element_seed(Reader(&mut *self.0))? {
            nodes.push(node);
        }
        Ok(Node::List(nodes))
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
        let mut members: Vec<(String, Node)> = Vec::new();
        while let Some(key) = map.next_key::<String>()? {
            self.0.step();
            members.push((key, map.next_value_seed(Reader(&mut *self.0))?));
        }
        members.sort_by(|(one, _), (other, _)| one.encode_utf16().cmp(other.encode_utf16()));
        // One reader would take the first value, another the last, under the same signature.
        if members.windows(2).any(|pair| matches!(pair, [one, other] if one.0 == other.0)) {
            return Err(self.fail(CanonicalError::DuplicateKey));
        }
        Ok(Node::Object(members))
    }
}

fn write_node(node: &Node, out: &mut Vec<u8>) {
    match node {
        Node::Null => out.extend_from_slice(b"null"),
        Node::Bool(true) => out.extend_from_slice(b"true"),
        Node::Bool(false) => out.extend_from_slice(b"false"),
        Node::Number(number) => {
            out.extend_from_slice(ryu_js::Buffer::new().format_finite(*number).as_bytes())
        }
        Node::Text(text) => write_text(text, out),
        Node::List(nodes) => {
            out.push(b'[');
            for (position, node) in nodes.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_node(node, out);
            }
            out.push(b']');
        }
        Node::Object(members) => {
            out.push(b'{');
            for (position, (key, node)) in members.iter().enumerate() {
                if position > 0 {
                    out.push(b',');
                }
                write_text(key, out);
                out.push(b':');
                write_node(node, out);
            }
            out.push(b'}');
        }
    }
}

/// Writes a string in its canonical form.
pub fn write_text(text: &str, out: &mut Vec<u8>) {
    out.push(b'"');
    for &byte in text.as_bytes() {
        match byte {
            b'"' => out.extend_from_slice(b"\\\""),
            b'\\' => out.extend_from_slice(b"\\\\"),
            0x08 => out.extend_from_slice(b"\\b"),
            b'\t' => out.extend_from_slice(b"\\t"),
            b'\n' => out.extend_from_slice(b"\\n"),
            0x0c => out.extend_from_slice(b"\\f"),
            b'\r' => out.extend_from_slice(b"\\r"),
            0x00..=0x1f => out.extend_from_slice(format!("\\u{byte:04x}").as_bytes()),
            _ => out.push(byte),
        }
    }
    out.push(b'"');
}
