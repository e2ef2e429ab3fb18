//! New messages and envelopes for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::core::envelope::{Envelope, correlation, seal};
use crate::core::message_groups::{self, GroupRow, GroupTopic};
use crate::core::new_messages::{self as core, MessageRefused, MessageRow, Sender};
use crate::core::timestamp;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(request_topic, module)?)?;
    module.add_function(wrap_pyfunction!(read_new_messages, module)?)?;
    module.add_function(wrap_pyfunction!(group_topics, module)?)?;
    module.add_function(wrap_pyfunction!(read_message_groups, module)?)?;
    module.add_function(wrap_pyfunction!(shard_of, module)?)?;
    module.add_function(wrap_pyfunction!(envelope, module)?)
}

/// (shard, delay_ms, replay_ms, runs, keys, numbers of the messages).
type Row<'py> = (u32, u32, u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<u32>);
/// (topic, shard, delay_ms, replay_ms, runs, keys, places, groups).
type TopicRow<'py> =
    (u32, u32, u32, u32, Bound<'py, PyBytes>, Bound<'py, PyBytes>, Vec<u32>, Bound<'py, PyBytes>);
/// (group, topic, shard, copies, bytes).
type Demand = (u32, u32, u32, u32, u32);
/// Rows, demands, copies of each group, groups that are refused, and whether anything has a key.
type Groups<'py> = (Vec<TopicRow<'py>>, Vec<Demand>, Vec<u32>, Vec<(u32, &'static str, &'static str)>, bool);
type Fault = (i64, &'static str, &'static str);

#[pyfunction]
fn request_topic(request: &[u8]) -> PyResult<&str> {
    core::request_topic(request).map_err(|refused| PyValueError::new_err(refused.sentence))
}

#[pyfunction]
#[pyo3(signature = (request, *, topic, source, cert_serial, scope, now_unix_ns, secret, shards))]
#[allow(clippy::too_many_arguments)] // The stub's signature.
fn read_new_messages<'py>(
    py: Python<'py>,
    request: &[u8],
    topic: &str,
    source: &str,
    cert_serial: &str,
    scope: &str,
    now_unix_ns: i64,
    secret: [u8; 32],
    shards: u32,
) -> (Vec<Row<'py>>, Option<Fault>) {
    let sender = Sender { topic, source, cert_serial, scope, now_unix_ns };
    match py.detach(|| core::read_new_messages(request, &sender, &secret, shards)) {
        Ok(rows) => (rows.into_iter().map(|row| tell(py, row)).collect(), None),
        Err(MessageRefused { index, reason, sentence }) => {
            let index = index.and_then(|index| i64::try_from(index).ok()).unwrap_or(-1);
            (Vec::new(), Some((index, reason, sentence)))
        }
    }
}

fn tell(py: Python<'_>, row: MessageRow) -> Row<'_> {
    (
        row.shard,
        row.delay_ms,
        row.replay_ms,
        PyBytes::new(py, &row.runs),
        PyBytes::new(py, &row.keys),
        row.indices,
    )
}

#[pyfunction]
fn group_topics(request: &[u8]) -> PyResult<Vec<&str>> {
    message_groups::group_topics(request).map_err(|refused| PyValueError::new_err(refused.sentence))
}

#[pyfunction]
#[pyo3(signature = (request, *, topics, source, cert_serial, scope, now_unix_ns, secret, skip))]
#[allow(clippy::too_many_arguments)] // The stub's signature.
fn read_message_groups<'py>(
    py: Python<'py>,
    request: &[u8],
    topics: Vec<(String, u32)>,
    source: &str,
    cert_serial: &str,
    scope: &str,
    now_unix_ns: i64,
    secret: [u8; 32],
    skip: Vec<u32>,
) -> (Option<Groups<'py>>, Option<Fault>) {
    let sender = Sender { topic: "", source, cert_serial, scope, now_unix_ns };
    let topics: Vec<GroupTopic<'_>> =
        topics.iter().map(|(name, shards)| GroupTopic { name, shards: *shards }).collect();
    match py.detach(|| message_groups::read_groups(request, &sender, &topics, &secret, &skip)) {
        Ok(read) => {
            let rows = read.rows.into_iter().map(|row| tell_topic(py, row)).collect();
            let demands = read
                .demands
                .iter()
                .map(|one| (one.group, one.topic, one.shard, one.copies, one.bytes))
                .collect();
            (Some((rows, demands, read.copies, read.refused, read.keyed)), None)
        }
        Err(MessageRefused { reason, sentence, .. }) => (None, Some((-1, reason, sentence))),
    }
}

fn tell_topic(py: Python<'_>, row: GroupRow) -> TopicRow<'_> {
    (
        row.topic,
        row.shard,
        row.delay_ms,
        row.replay_ms,
        PyBytes::new(py, &row.runs),
        PyBytes::new(py, &row.keys),
        row.places,
        PyBytes::new(py, &row.groups),
    )
}

#[pyfunction]
fn shard_of(key: &str, shards: u32) -> u32 {
    core::shard_of(key, shards)
}

/// (ts, payload_hash, corr_id, hash_chain).
#[pyfunction]
#[pyo3(signature = (*, topic, msg_id, stored_unix_ns, id, idem_key, attrs, payload))]
fn envelope(
    topic: &str,
    msg_id: u64,
    stored_unix_ns: i64,
    id: &str,
    idem_key: &str,
    attrs: Vec<(String, String)>,
    payload: &[u8],
) -> (String, String, String, String) {
    let attrs: Vec<(&str, &str)> =
        attrs.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
    let (payload_hash, chain) = seal(&Envelope { topic, stored_unix_ns, idem_key, attrs: &attrs, payload });
    let time = String::from_utf8_lossy(&timestamp::format(stored_unix_ns)).into_owned();
    let corr_id = correlation(id, topic, msg_id, stored_unix_ns);
    (time, format!("b3:{}", payload_hash.to_hex()), corr_id, format!("b3:{}", chain.to_hex()))
}
