//! Groups of messages for several topics: read, checked, and written as stored runs, a row for each topic.
//!
//! As strict as `new_messages`. What is wrong with a message refuses its group and no other; what cannot be read at all
//! refuses the request. A message is written once, however many topics it is for.

use super::new_messages::{
    COMMAND, LEASED_RUN, MessageRefused, NewMessage, Sender, head_of, read_new_message, whole, write,
};
use super::replay::{COLUMN, Fingerprints};
use super::wire::{Fields, Malformed, bytes_field_len, put_bytes};

pub const MAX_GROUPS: usize = 1000;
pub const MAX_COPIES: usize = 4000;
pub const MAX_TOPICS_PER_PART: usize = 64;
/// Of all copies: a megabyte for many topics must not become a gigabyte here.
pub const MAX_COPIED_BYTES: usize = 16 << 20;
const ROW_MESSAGES: usize = 1000;

/// A topic of a request, with the rules that matter here.
pub struct GroupTopic<'a> {
    pub name: &'a str,
    pub shards: u32,
}

/// Messages of one topic that can be stored as one batch.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct GroupRow {
    /// Number of the topic.
    pub topic: u32,
    pub shard: u32,
    pub delay_ms: u32,
    pub replay_ms: u32,
    pub runs: Vec<u8>,
    /// A column per message, zeros for one without a key; empty when nothing in the request has one.
    pub keys: Vec<u8>,
    /// Place of each copy among all of the request's.
    pub places: Vec<u32>,
    /// As `replay::Asked` has them.
    pub groups: Vec<u8>,
}

/// So many copies of a group for one shard of a topic.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Demand {
    pub group: u32,
    pub topic: u32,
    pub shard: u32,
    pub copies: u32,
    pub bytes: u32,
}

/// A request that was read.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ReadGroups {
    pub rows: Vec<GroupRow>,
    /// Of the groups that are in `rows`, in order.
    pub demands: Vec<Demand>,
    /// Number of copies of every group.
    pub copies: Vec<u32>,
    /// The groups that are refused for what is in them.
    pub refused: Vec<(u32, &'static str, &'static str)>,
    pub keyed: bool,
}

struct Part<'a> {
    topics: Vec<&'a str>,
    messages: Vec<NewMessage<'a>>,
}

/// Every topic of a request, each once.
pub fn group_topics(request: &[u8]) -> Result<Vec<&str>, MessageRefused> {
    let mut found: Vec<&str> = Vec::new();
    let mut known = std::collections::HashSet::new();
    let mut groups = Fields::new(request);
    while let Some(group) = groups.next()? {
        let mut parts = Fields::new(group.bytes()?);
        while let Some(part) = parts.next()? {
            if part.number != 1 {
                continue;
            }
            let mut fields = Fields::new(part.bytes()?);
            while let Some(field) = fields.next()? {
                if field.number == 1 {
                    let topic = field.text()?;
                    if known.insert(topic) {
                        if found.len() == MAX_COPIES {
                            return Err(whole("too-many", "A request has at most 4000 copies of messages."));
                        }
                        found.push(topic);
                    }
                }
            }
        }
    }
    Ok(found)
}

/// Rows for the groups of a SendAllRequest but those of `skip`, in order within each shard. `topics` are those of
/// `group_topics`, in its order.
pub fn read_groups(
    request: &[u8],
    sender: &Sender<'_>,
    topics: &[GroupTopic<'_>],
    secret: &[u8; 32],
    skip: &[u32],
) -> Result<ReadGroups, MessageRefused> {
    let mut read = ReadGroups::default();
    let mut sorting = Sorting::new(sender, topics, secret);
    let mut groups = Fields::new(request);
    let (mut number, mut place, mut copied) = (0u32, 0u32, 0usize);
    while let Some(field) = groups.next()? {
        if field.number != 1 {
            return Err(Malformed.into());
        }
        if number as usize == MAX_GROUPS {
            return Err(whole("too-many", "A request has at most 1000 groups."));
        }
        let (parts, refuse_duplicates, fault) = read_group(field.bytes()?)?;
        let copies: usize = parts.iter().map(|part| part.topics.len() * part.messages.len()).sum();
        if place as usize + copies > MAX_COPIES {
            return Err(whole("too-many", "A request has at most 4000 copies of messages."));
        }
        let fault = fault.or_else(|| check_group(&parts));
        if let Some((reason, sentence)) = fault {
            read.refused.push((number, reason, sentence));
        } else if !skip.contains(&number) {
            sorting.add(number, place, &parts, refuse_duplicates, &mut copied)?;
        }
        read.copies.push(copies as u32);
        place += copies as u32;
        number += 1;
    }
    if read.copies.is_empty() {
        return Err(whole("empty", "The request has no groups."));
    }
    sorting.finish(&mut read);
    Ok(read)
}

type Fault = (&'static str, &'static str);

/// Parts, whether duplicates refuse the group, and what is wrong with a message of it.
fn read_group(bytes: &[u8]) -> Result<(Vec<Part<'_>>, bool, Option<Fault>), MessageRefused> {
    let (mut parts, mut refuse, mut fault, mut last) = (Vec::new(), false, None, 0);
    let mut fields = Fields::new(bytes);
    while let Some(field) = fields.next()? {
        match (field.number, last) {
            (1, 0 | 1) => parts.push(read_part(field.bytes()?, &mut fault)?),
            (2, 0 | 1) => {
                refuse = match field.varint()? {
                    0 => false,
                    1 => true,
                    _ => return Err(Malformed.into()),
                }
            }
            _ => return Err(Malformed.into()),
        }
        last = field.number;
    }
    Ok((parts, refuse, fault))
}

fn read_part<'a>(bytes: &'a [u8], fault: &mut Option<Fault>) -> Result<Part<'a>, MessageRefused> {
    let mut part = Part { topics: Vec::new(), messages: Vec::new() };
    let mut fields = Fields::new(bytes);
    let mut last = 0;
    while let Some(field) = fields.next()? {
        match (field.number, last) {
            (1, 0 | 1) => part.topics.push(field.text()?),
            (2, 0..=2) => match read_new_message(field.bytes()?) {
                Ok(message) => part.messages.push(message),
                Err(found) => {
                    fault.get_or_insert(found);
                    part.messages.push(NewMessage::default());
                }
            },
            _ => return Err(Malformed.into()),
        }
        last = field.number;
    }
    Ok(part)
}

fn check_group(parts: &[Part<'_>]) -> Option<Fault> {
    if parts.is_empty() || parts.iter().any(|part| part.topics.is_empty() || part.messages.is_empty()) {
        return Some(("empty", "A group has parts, and each of them topics and messages."));
    }
    for part in parts {
        if part.topics.len() > MAX_TOPICS_PER_PART {
            return Some(("too-many", "A part has at most 64 topics."));
        }
        let mut topics = part.topics.clone();
        topics.sort_unstable();
        if topics.windows(2).any(|pair| pair[0] == pair[1]) {
            return Some(("topic", "A part names a topic twice."));
        }
    }
    None
}

struct Sorting<'a> {
    sender: &'a Sender<'a>,
    topics: &'a [GroupTopic<'a>],
    secret: &'a [u8; 32],
    numbers: std::collections::HashMap<&'a str, u32>,
    fingerprints: Vec<Option<Fingerprints<'a>>>,
    rows: Vec<(GroupRow, Vec<u8>)>,
    /// The last row of each shard of each topic.
    last: std::collections::HashMap<(u32, u32), usize>,
    demands: Vec<Demand>,
    head: Vec<u8>,
    keyed: bool,
}

impl<'a> Sorting<'a> {
    fn new(sender: &'a Sender<'a>, topics: &'a [GroupTopic<'a>], secret: &'a [u8; 32]) -> Self {
        Self {
            sender,
            topics,
            secret,
            numbers: (0u32..).zip(topics).map(|(number, topic)| (topic.name, number)).collect(),
            fingerprints: topics.iter().map(|_| None).collect(),
            rows: Vec::new(),
            last: std::collections::HashMap::new(),
            demands: Vec::new(),
            head: head_of(sender),
            keyed: false,
        }
    }

    fn add(
        &mut self,
        group: u32,
        mut place: u32,
        parts: &[Part<'_>],
        refuse_duplicates: bool,
        copied: &mut usize,
    ) -> Result<(), MessageRefused> {
        let tag = group << 1 | u32::from(refuse_duplicates);
        for part in parts {
            let mut commands = Vec::with_capacity(part.messages.len());
            for message in &part.messages {
                let written = write(message, self.sender);
                commands.push(written.map_err(|_| whole("no-randomness", "No id could be made."))?);
            }
            for topic in &part.topics {
                let number = *self.numbers.get(topic).ok_or(Malformed)?;
                for (message, command) in part.messages.iter().zip(&commands) {
                    *copied += command.len();
                    if *copied > MAX_COPIED_BYTES {
                        return Err(whole("oversized", "The copies of a request have at most 16 MiB."));
                    }
                    self.put(number, message, command, tag, place);
                    self.demand(
                        group,
                        number,
                        message.shard(topic, self.topics[number as usize].shards),
                        command,
                    );
                    place += 1;
                }
            }
        }
        Ok(())
    }

    fn put(&mut self, topic: u32, message: &NewMessage<'_>, command: &[u8], tag: u32, place: u32) {
        let of = &self.topics[topic as usize];
        let shard = message.shard(of.name, of.shards);
        let fits = |row: &GroupRow| {
            row.delay_ms == message.delay_ms
                && row.places.len() < ROW_MESSAGES
                && (!message.keyed() || row.replay_ms == message.replay_ms)
        };
        let at = match self.last.get(&(topic, shard)) {
            Some(&at) if fits(&self.rows[at].0) => at,
            _ => {
                let (delay_ms, replay_ms) = (message.delay_ms, message.replay_ms);
                let row = GroupRow { topic, shard, delay_ms, replay_ms, ..GroupRow::default() };
                self.rows.push((row, self.head.clone()));
                self.last.insert((topic, shard), self.rows.len() - 1);
                self.rows.len() - 1
            }
        };
        let (row, body) = &mut self.rows[at];
        put_bytes(body, COMMAND, command);
        row.places.push(place);
        row.groups.extend_from_slice(&tag.to_le_bytes());
        if message.keyed() {
            self.keyed = true;
            let (secret, scope) = (self.secret, self.sender.scope);
            let fingerprints = self.fingerprints[topic as usize]
                .get_or_insert_with(|| Fingerprints::new(secret, of.name, scope));
            message.put_column(fingerprints, &mut row.keys);
        } else {
            row.keys.resize(row.keys.len() + COLUMN, 0);
        }
    }

    fn demand(&mut self, group: u32, topic: u32, shard: u32, command: &[u8]) {
        let bytes = (self.head.len() + bytes_field_len(command.len()) + 16) as u32;
        match self.demands.last_mut() {
            Some(one) if (one.group, one.topic, one.shard) == (group, topic, shard) => {
                one.copies += 1;
                one.bytes += bytes;
            }
            _ => self.demands.push(Demand { group, topic, shard, copies: 1, bytes }),
        }
    }

    fn finish(self, read: &mut ReadGroups) {
        read.keyed = self.keyed;
        read.demands = self.demands;
        read.rows = self
            .rows
            .into_iter()
            .map(|(mut row, body)| {
                row.runs = Vec::with_capacity(bytes_field_len(body.len()));
                put_bytes(&mut row.runs, LEASED_RUN, &body);
                if !self.keyed {
                    row.keys = Vec::new();
                }
                row
            })
            .collect();
    }
}

#[cfg(test)]
mod tests {
    use super::super::testing::mangled;
    use super::super::wire::put_number;
    use super::*;

    const SENDER: Sender<'_> = Sender {
        topic: "",
        source: "acme/edge",
        cert_serial: "ab",
        scope: "acme",
        now_unix_ns: 1_700_000_000_000_000_000,
    };

    fn message(payload: &[u8], key: &str) -> Vec<u8> {
        let mut out = Vec::new();
        put_bytes(&mut out, 1, payload);
        if !key.is_empty() {
            put_bytes(&mut out, 2, key.as_bytes());
        }
        out
    }

    fn group(topics: &[&str], messages: &[Vec<u8>], refuse: bool) -> Vec<u8> {
        let mut part = Vec::new();
        topics.iter().for_each(|topic| put_bytes(&mut part, 1, topic.as_bytes()));
        messages.iter().for_each(|message| put_bytes(&mut part, 2, message));
        let mut out = Vec::new();
        put_bytes(&mut out, 1, &part);
        if refuse {
            put_number(&mut out, 2, 1);
        }
        out
    }

    fn request(groups: &[Vec<u8>]) -> Vec<u8> {
        let mut out = Vec::new();
        groups.iter().for_each(|group| put_bytes(&mut out, 1, group));
        out
    }

    fn open(request: &[u8], skip: &[u32]) -> Result<ReadGroups, MessageRefused> {
        let names = group_topics(request)?;
        let topics: Vec<GroupTopic<'_>> = names.iter().map(|name| GroupTopic { name, shards: 1 }).collect();
        read_groups(request, &SENDER, &topics, &[1; 32], skip)
    }

    #[test]
    fn messages_of_all_groups_share_the_row_of_their_topic() {
        let sent = request(&[
            group(&["t/own/a", "t/own/b"], &[message(b"1", "k1")], true),
            group(&["t/own/b"], &[message(b"2", ""), message(b"3", "k3")], false),
        ]);
        let read = open(&sent, &[]).unwrap();
        assert!(read.keyed && read.refused.is_empty());
        assert_eq!(read.copies, [2, 2]);
        let told: Vec<_> =
            read.rows.iter().map(|row| (row.topic, row.places.clone(), row.keys.len())).collect();
        assert_eq!(told, [(0, vec![0], 32), (1, vec![1, 2, 3], 96)]);
        assert_eq!(read.rows[1].groups, [1u32, 2, 2].map(u32::to_le_bytes).concat());
        assert_eq!(read.rows[1].keys[32..64], [0; 32]);
        assert_eq!(
            read.demands.iter().map(|one| (one.group, one.topic, one.copies)).collect::<Vec<_>>(),
            [(0, 0, 1), (0, 1, 1), (1, 1, 2)]
        );
        for row in &read.rows {
            let asked: u32 =
                read.demands.iter().filter(|one| one.topic == row.topic).map(|one| one.bytes).sum();
            assert!(row.runs.len() <= asked as usize);
        }
        let skipped = open(&sent, &[0]).unwrap();
        assert_eq!(
            (skipped.rows.len(), skipped.rows[0].places.clone(), skipped.copies),
            (1, vec![2, 3], vec![2, 2])
        );
    }

    #[test]
    fn what_is_wrong_with_a_group_refuses_that_group_alone() {
        let good = group(&["t/own/a"], &[message(b"x", "")], false);
        let mut bad_key = message(b"x", "");
        put_bytes(&mut bad_key, 2, b"not visible");
        let wrong = [
            (group(&["t/own/a"], &[bad_key], false), "idem-key"),
            (group(&["t/own/a", "t/own/a"], &[message(b"x", "")], false), "topic"),
            (group(&["t/own/a"], &[], false), "empty"),
            (Vec::new(), "empty"),
        ];
        for (bad, reason) in wrong {
            let read = open(&request(&[good.clone(), bad, good.clone()]), &[]).unwrap();
            assert_eq!(read.refused.iter().map(|one| (one.0, one.1)).collect::<Vec<_>>(), [(1, reason)]);
            assert_eq!(read.rows.iter().map(|row| row.places.len()).sum::<usize>(), 2);
        }
        let most = request(&vec![good.clone(); MAX_GROUPS + 1]);
        assert_eq!(open(&most, &[]).unwrap_err().reason, "too-many");
        assert_eq!(open(b"", &[]).unwrap_err().reason, "empty");
        let topics: Vec<String> = (0..64).map(|number| format!("t/own/{number}")).collect();
        let topics: Vec<&str> = topics.iter().map(String::as_str).collect();
        let wide = group(&topics, &[message(&vec![0; 300 << 10], "")], false);
        assert_eq!(open(&request(&[wide]), &[]).unwrap_err().reason, "oversized");
    }

    #[test]
    fn no_bytes_make_it_panic() {
        let sent =
            request(&[group(&["t/own/a", "t/own/b"], &[message(b"payload", "key"), message(b"", "")], true)]);
        for frame in mangled(&sent) {
            let _ = open(&frame, &[]);
        }
    }
}
