//! Admission, nonces, signing and timestamps for Python.

use std::collections::HashMap;
use std::sync::Mutex;

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::{PyBackedBytes, PyBackedStr};
use pyo3::types::{PyBytes, PyDict};

use super::ledger::Ledger;
use super::part_buffer::PartBuffer;
use super::sampled::SampledCommand;
use super::{lock, without_gil_if_large};
use crate::core::admission::{Admission as CoreAdmission, Judged, tell_closed};
use crate::core::command::Command;
use crate::core::keys::{BadKey, Key, KeySet, SHORTEST_SECRET};
use crate::core::nonces::{Claim, Nonce, NonceSet as CoreNonceSet, Share};
use crate::core::part_buffer as core;
use crate::core::runs::Caller;
use crate::core::sampled::Sampled;
use crate::core::signing::{self, Draft, MacKey, Submissions};
use crate::core::submission::{Limits, measure};
use crate::core::telemetry::TelemetryBlock;
use crate::core::{crypto, timestamp, verdict};

/// Shield's default limits.
const MAX_PAYLOAD_BYTES: usize = 256 << 10;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(measure_submission, module)?)?;
    module.add_class::<NonceSet>()?;
    module.add_class::<Admission>()?;
    module.add_class::<Judgement>()?;
    module.add_function(wrap_pyfunction!(sign_command, module)?)?;
    module.add_function(wrap_pyfunction!(sign_batch, module)?)?;
    module.add_function(wrap_pyfunction!(hmac_sha256, module)?)?;
    module.add_function(wrap_pyfunction!(format_timestamp, module)?)?;
    module.add_function(wrap_pyfunction!(parse_timestamp, module)?)
}

/// (verdict, number of the batch, commands); a verdict of 0 where it is a batch.
#[pyfunction]
#[pyo3(signature = (submission, *, max_batch_bytes, max_batch_commands))]
fn measure_submission(
    submission: &[u8],
    max_batch_bytes: usize,
    max_batch_commands: usize,
) -> (u8, u64, usize) {
    let limits = Limits { max_batch_bytes, max_batch_commands, max_payload_bytes: 0 };
    measure(submission, &limits).map_or_else(|code| (code, 0, 0), |(seq, count)| (0, seq, count))
}

#[pyclass(frozen, module = "snavio._native")]
struct NonceSet {
    inner: Mutex<CoreNonceSet>,
}

#[pymethods]
impl NonceSet {
    #[new]
    #[pyo3(signature = (*, capacity, share_per_tenant, reserve = 0))]
    fn new(capacity: usize, share_per_tenant: usize, reserve: usize) -> Self {
        let share = Share { total: capacity, per_tenant: share_per_tenant, reserve };
        Self { inner: Mutex::new(CoreNonceSet::new(share)) }
    }

    fn holders(&self) -> HashMap<String, usize> {
        lock(&self.inner).holders().into_iter().collect()
    }

    fn claim(&self, source: &str, tag: &[u8], until_unix_ns: i64, now_unix_ns: i64) -> PyResult<u8> {
        let nonce = Nonce::new(tag, until_unix_ns)
            .ok_or_else(|| PyValueError::new_err("tag: shorter than 8 bytes"))?;
        Ok(match lock(&self.inner).claim(source, nonce, now_unix_ns) {
            Claim::Fresh => verdict::UNDECIDED,
            Claim::Saturated => verdict::SATURATED,
            // Nobody can say any more that an expired one was not claimed before.
            Claim::Replayed | Claim::Expired => verdict::REPLAYED,
        })
    }

    fn __len__(&self) -> usize {
        lock(&self.inner).len()
    }
}

/// Version, secret, not before, not after (0: never), revoked.
type KeyRow<'py> = (String, Bound<'py, PyBytes>, i64, i64, bool);

#[pyclass(frozen, module = "snavio._native")]
struct Admission {
    inner: CoreAdmission,
}

#[pymethods]
impl Admission {
    #[new]
    #[pyo3(signature = (*, audience, window_ms = 60_000, nonce_capacity = 40_000_000,
        nonce_share_per_tenant = 20_000_000, nonce_reserve = 0, max_batch_bytes = 1 << 20, max_batch_commands = 1000,
        max_payload_bytes = MAX_PAYLOAD_BYTES))]
    #[allow(clippy::too_many_arguments)] // Python gives them by name.
    fn new(
        audience: &str,
        window_ms: u32,
        nonce_capacity: usize,
        nonce_share_per_tenant: usize,
        nonce_reserve: usize,
        max_batch_bytes: usize,
        max_batch_commands: usize,
        max_payload_bytes: usize,
    ) -> PyResult<Self> {
        let share =
            Share { total: nonce_capacity, per_tenant: nonce_share_per_tenant, reserve: nonce_reserve };
        let nonces = CoreNonceSet::new(share);
        let limits = Limits { max_batch_bytes, max_batch_commands, max_payload_bytes };
        let inner = CoreAdmission::new(audience, window_ms, nonces, limits)
            .ok_or_else(|| PyValueError::new_err("audience: not [A-Za-z0-9][A-Za-z0-9._:-]{0,127}"))?;
        Ok(Self { inner })
    }

    fn set_keyset(&self, source: &str, versions: Vec<KeyRow<'_>>) -> PyResult<()> {
        let refuse = |fault: BadKey| PyValueError::new_err(fault.reason());
        let keys: Result<Vec<Key>, BadKey> = versions
            .iter()
            .map(|(version, secret, not_before, not_after, revoked)| {
                Key::new(version, secret.as_bytes(), *not_before, *not_after, *revoked)
            })
            .collect();
        self.inner.set_keyset(source, keys.and_then(KeySet::new).map_err(refuse)?);
        Ok(())
    }

    fn remove_keyset(&self, source: &str) {
        self.inner.remove_keyset(source);
    }

    fn nonce_holders(&self) -> HashMap<String, usize> {
        self.inner.nonce_holders().into_iter().collect()
    }

    fn set_suspended(&self, source: &str, suspended: bool) {
        self.inner.set_suspended(source, suspended);
    }

    #[pyo3(signature = (submission, *, source, cert_serial, now_unix_ns))]
    fn judge(
        &self,
        py: Python<'_>,
        submission: PyBackedBytes,
        source: &str,
        cert_serial: &str,
        now_unix_ns: i64,
    ) -> PyResult<Judgement> {
        let caller = Caller { source, cert_serial };
        let judged =
            without_gil_if_large(py, submission.len(), || self.inner.judge(&submission, caller, now_unix_ns));
        Judgement::wrap(py, judged, submission)
    }

    #[pyo3(signature = (command, *, source, cert_serial, now_unix_ns, budget_ms))]
    fn judge_one(
        &self,
        py: Python<'_>,
        command: PyBackedBytes,
        source: &str,
        cert_serial: &str,
        now_unix_ns: i64,
        budget_ms: u32,
    ) -> PyResult<Judgement> {
        let caller = Caller { source, cert_serial };
        let judged = without_gil_if_large(py, command.len(), || {
            self.inner.judge_one(&command, caller, now_unix_ns, budget_ms)
        });
        Judgement::wrap(py, judged, command)
    }

    fn key_usage(&self, py: Python<'_>) -> Vec<(String, String, u64)> {
        py.detach(|| self.inner.drain_usage())
    }

    fn flood_telemetry<'py>(&self, py: Python<'py>, now_unix_ns: i64) -> Vec<(usize, Bound<'py, PyBytes>)> {
        let blocks = py.detach(|| self.inner.drain_floods(now_unix_ns));
        blocks.into_iter().map(|(rows, block)| (rows, PyBytes::new(py, &block))).collect()
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let counters = PyDict::new(py);
        for (name, count) in self.inner.counters() {
            counters.set_item(name, count)?;
        }
        Ok(counters)
    }
}

#[pyclass(frozen, module = "snavio._native")]
struct Judgement {
    #[pyo3(get)]
    ledger: Py<Ledger>,
    #[pyo3(get)]
    budget_ms: u32,
    #[pyo3(get)]
    accepted: usize,
    #[pyo3(get)]
    buffer: Py<PartBuffer>,
    #[pyo3(get)]
    frame_code: u8,
    block: TelemetryBlock,
    sampled: Sampled,
}

impl Judgement {
    fn wrap(py: Python<'_>, judged: Judged, frame: PyBackedBytes) -> PyResult<Self> {
        Ok(Self {
            ledger: Ledger::wrap(py, judged.ledger)?,
            budget_ms: judged.budget_ms,
            accepted: judged.accepted,
            buffer: PartBuffer::wrap(py, core::PartBuffer::Runs(judged.runs), frame)?,
            frame_code: judged.frame_code,
            block: judged.rows,
            sampled: judged.sampled,
        })
    }
}

#[pymethods]
impl Judgement {
    #[getter]
    fn runs<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.buffer.get().to_bytes(py)
    }

    fn telemetry<'py>(&self, py: Python<'py>, settled_unix_ns: i64) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.block.write(settled_unix_ns))
    }

    fn telemetry_closed<'py>(&self, py: Python<'py>, settled_unix_ns: i64) -> Bound<'py, PyBytes> {
        let (buffer, ledger) = (self.buffer.get(), self.ledger.get());
        let written = py.detach(|| {
            let ledger = ledger.lock();
            if !ledger.any_closed_here() {
                return Vec::new();
            }
            tell_closed(&buffer.to_vec(), &ledger, settled_unix_ns)
        });
        PyBytes::new(py, &written)
    }

    fn sampled(&self) -> Vec<SampledCommand> {
        SampledCommand::all(&self.sampled)
    }

    /// Rows that `telemetry` writes.
    #[getter]
    fn rows(&self) -> usize {
        self.block.len()
    }
}

#[pyfunction]
#[pyo3(signature = (secret, *, key_version, audience, command_id, timestamp_unix_ns, target, name, payload,
    content_type = "", traceparent = ""))]
#[allow(clippy::too_many_arguments)] // The stub's signature.
fn sign_command<'py>(
    py: Python<'py>,
    secret: &[u8],
    key_version: &str,
    audience: &str,
    command_id: &str,
    timestamp_unix_ns: i64,
    target: &str,
    name: &str,
    payload: &[u8],
    content_type: &str,
    traceparent: &str,
) -> PyResult<Bound<'py, PyBytes>> {
    let draft = Command {
        id: command_id.as_bytes(),
        key_version: key_version.as_bytes(),
        audience: audience.as_bytes(),
        target: target.as_bytes(),
        name: name.as_bytes(),
        content_type: content_type.as_bytes(),
        payload,
        traceparent: traceparent.as_bytes(),
        ..Command::default()
    };
    let command = signing::sign(&mac_key(secret)?, draft, timestamp_unix_ns, MAX_PAYLOAD_BYTES)
        .map_err(|code| PyValueError::new_err(format!("{}: {}", field(code), verdict::name(code))))?;
    Ok(PyBytes::new(py, &command))
}

/// (ids as text, 36 bytes each; (count, body) per submission)
type Signed<'py> = (Bound<'py, PyBytes>, Vec<(usize, Py<PartBuffer>)>);

#[pyfunction]
#[pyo3(signature = (secret, *, key_version, audience, timestamp_unix_ns, commands, content_type = "",
    max_batch_bytes = 1 << 20, max_batch_commands = 1000))]
#[allow(clippy::too_many_arguments)] // The stub's signature.
fn sign_batch<'py>(
    py: Python<'py>,
    secret: &[u8],
    key_version: &str,
    audience: &str,
    timestamp_unix_ns: i64,
    commands: Vec<(PyBackedStr, PyBackedStr, PyBackedBytes)>,
    content_type: &str,
    max_batch_bytes: usize,
    max_batch_commands: usize,
) -> PyResult<Signed<'py>> {
    let limits = Limits {
        max_batch_bytes,
        max_batch_commands: max_batch_commands.max(1),
        max_payload_bytes: MAX_PAYLOAD_BYTES,
    };
    let key = mac_key(secret)?;
    let signed = py.detach(|| {
        let made = crypto::uuid7s(commands.len()).map_err(|error| PyOSError::new_err(error.to_string()))?;
        let ids: Vec<u8> = made.iter().flat_map(crypto::uuid_characters).collect();
        let shared = Command {
            key_version: key_version.as_bytes(),
            audience: audience.as_bytes(),
            content_type: content_type.as_bytes(),
            ..Command::default()
        };
        let drafts = commands.iter().zip(ids.chunks(36)).map(|((target, name, payload), id)| Draft {
            id,
            target: target.as_bytes(),
            name: name.as_bytes(),
            payload,
        });
        Submissions::sign(&key, shared, drafts, timestamp_unix_ns, &limits)
            .map_err(|(number, code)| {
                PyValueError::new_err(format!("command {number}: {}: {}", field(code), verdict::name(code)))
            })
            .map(|submissions| (ids, submissions))
    })?;
    let (ids, submissions) = signed;
    let tell = |(count, body)| Ok((count, PartBuffer::own(py, body)?));
    let chunks: PyResult<Vec<_>> = submissions.chunks.into_iter().map(tell).collect();
    Ok((PyBytes::new(py, &ids), chunks?))
}

/// A key to sign with, or why its secret cannot be one.
fn mac_key(secret: &[u8]) -> PyResult<MacKey> {
    let refused = || PyValueError::new_err(BadKey::Secret.reason());
    if secret.len() < SHORTEST_SECRET {
        return Err(refused());
    }
    MacKey::new(secret).map_err(|_| refused())
}

/// The argument that a code speaks of.
fn field(code: u8) -> &'static str {
    match code {
        verdict::OVERSIZED => "payload",
        verdict::INVALID_ID => "command_id",
        verdict::INVALID_TIMESTAMP => "timestamp_unix_ns",
        verdict::INVALID_KEY_VERSION => "key_version",
        verdict::INVALID_AUDIENCE => "audience",
        verdict::INVALID_TARGET => "target",
        verdict::INVALID_NAME => "name",
        verdict::INVALID_CONTENT_TYPE => "content_type",
        verdict::INVALID_TRACEPARENT => "traceparent",
        _ => "command",
    }
}

#[pyfunction]
fn hmac_sha256<'py>(py: Python<'py>, secret: &[u8], message: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let key = MacKey::new(secret).map_err(|error| PyValueError::new_err(error.to_string()))?;
    Ok(PyBytes::new(py, &key.tag(message)))
}

#[pyfunction]
fn format_timestamp(unix_ns: i64) -> String {
    String::from_utf8_lossy(&timestamp::format(unix_ns)).into_owned()
}

#[pyfunction]
fn parse_timestamp(text: &str) -> PyResult<i64> {
    timestamp::parse(text.as_bytes()).ok_or_else(|| {
        PyValueError::new_err("timestamp: not RFC 3339 in UTC with at most nine fractional digits")
    })
}
