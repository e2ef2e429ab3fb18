//! Arbitration for Python.

use std::sync::{Arc, Mutex};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::ledger::{Ledger, decided};
use super::lock;
use super::plan::PlannedSend;
use crate::core::arbitration as core;
use crate::core::duplicates::Duplicates;
use crate::core::frames::Limits;
use crate::core::ledger::{Hint, Shares};
use crate::core::reframer::{Destination, Send};
use crate::core::telemetry::GRANT_UNLIMITED;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<LaneKey>()?;
    module.add_class::<IdClaim>()?;
    module.add_class::<Committed>()?;
    module.add_class::<Arbitration>()
}

/// The commands that one decision is about: those of one source, target, name and escalation reason.
#[pyclass(frozen, get_all, module = "snavio._native")]
struct LaneKey {
    source: String,
    target: String,
    name: String,
    reason: u8,
}

/// An id to be claimed: the command's index in the batch, its id, BLAKE3 of its target, name and payload.
#[pyclass(frozen, get_all, module = "snavio._native")]
struct IdClaim {
    index: u32,
    id: Py<PyBytes>,
    contents: Py<PyBytes>,
}

/// Strict commands that are known to be delivered.
#[pyclass(frozen, module = "snavio._native")]
struct Committed {
    inner: Mutex<Duplicates>,
}

#[pymethods]
impl Committed {
    #[new]
    fn new(capacity: usize) -> Self {
        Self { inner: Mutex::new(Duplicates::new(capacity)) }
    }

    fn __len__(&self) -> usize {
        lock(&self.inner).len()
    }
}

impl From<core::Misuse> for PyErr {
    fn from(misuse: core::Misuse) -> Self {
        PyValueError::new_err(misuse.0)
    }
}

/// Locks in one order, here before the ledger, so that two threads cannot wait for each other.
#[pyclass(frozen, module = "snavio._native")]
struct Arbitration {
    inner: Mutex<core::Arbitration>,
    ledger: Py<Ledger>,
}

#[pymethods]
impl Arbitration {
    #[staticmethod]
    #[pyo3(signature = (
        frame,
        max_batch_bytes = Limits::MESH.max_batch_bytes,
        max_batch_commands = Limits::MESH.max_batch_commands,
    ))]
    fn open(
        py: Python<'_>,
        frame: &[u8],
        max_batch_bytes: usize,
        max_batch_commands: usize,
    ) -> PyResult<Self> {
        let limits = Limits { max_batch_bytes, max_batch_commands };
        let (inner, ledger) = py.detach(|| core::Arbitration::open(frame, &limits));
        Ok(Self { inner: Mutex::new(inner), ledger: Ledger::wrap(py, ledger)? })
    }

    #[getter]
    fn ledger(&self, py: Python<'_>) -> Py<Ledger> {
        self.ledger.clone_ref(py)
    }

    #[getter]
    fn budget_ms(&self) -> u32 {
        lock(&self.inner).budget_ms()
    }

    #[getter]
    fn frame_code(&self) -> u8 {
        lock(&self.inner).frame_code()
    }

    fn keys(&self) -> Vec<LaneKey> {
        let own = |(source, target, name, reason): (&str, &str, &str, u8)| LaneKey {
            source: source.to_owned(),
            target: target.to_owned(),
            name: name.to_owned(),
            reason,
        };
        lock(&self.inner).keys().into_iter().map(own).collect()
    }

    fn undecided(&self) -> Vec<u32> {
        let inner = lock(&self.inner);
        inner.undecided(&self.ledger.get().lock())
    }

    #[allow(clippy::too_many_arguments)] // The stub's signature.
    #[pyo3(signature = (
        key,
        code,
        retry_after_ms,
        detail,
        *,
        spare = 0,
        throttle_until_unix_ns = 0,
        source_share = 0.0,
        competing_share = 0.0,
        dispatch_volume = 0,
    ))]
    fn refuse<'py>(
        &self,
        py: Python<'py>,
        key: usize,
        code: u8,
        retry_after_ms: u32,
        detail: &str,
        spare: usize,
        throttle_until_unix_ns: i64,
        source_share: f64,
        competing_share: f64,
        dispatch_volume: u32,
    ) -> PyResult<Bound<'py, PyBytes>> {
        decided(code)?;
        let shares = Shares { source: source_share, competing: competing_share, volume: dispatch_volume };
        let hint = Hint { retry_after_ms, throttle_until_unix_ns, detail, shares };
        let inner = lock(&self.inner);
        let answer = inner.refuse(&mut self.ledger.get().lock(), key, spare, code, &hint)?;
        Ok(PyBytes::new(py, &answer))
    }

    fn decide<'py>(
        &self,
        py: Python<'py>,
        indices: Vec<u32>,
        code: u8,
        retry_after_ms: u32,
        detail: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        decided(code)?;
        let hint = Hint { retry_after_ms, detail, ..Hint::default() };
        let inner = lock(&self.inner);
        let answer = inner.decide(&mut self.ledger.get().lock(), &indices, code, &hint);
        Ok(PyBytes::new(py, &answer))
    }

    fn settle_known<'py>(
        &self,
        py: Python<'py>,
        key: usize,
        known: &Committed,
        now_mono_ns: i64,
    ) -> PyResult<Bound<'py, PyBytes>> {
        let ledger = self.ledger.get();
        let answer = py.detach(|| {
            let inner = lock(&self.inner);
            inner.settle_known(&mut ledger.lock(), key, &lock(&known.inner), now_mono_ns)
        })?;
        Ok(PyBytes::new(py, &answer))
    }

    fn settle_duplicates<'py>(&self, py: Python<'py>, found: Vec<(u32, String)>) -> Bound<'py, PyBytes> {
        let inner = lock(&self.inner);
        PyBytes::new(py, &inner.settle_duplicates(&mut self.ledger.get().lock(), found))
    }

    fn remember(&self, py: Python<'_>, known: &Committed, until_mono_ns: i64, now_mono_ns: i64) {
        let ledger = self.ledger.get();
        py.detach(|| {
            let inner = lock(&self.inner);
            inner.remember(&ledger.lock(), &mut lock(&known.inner), until_mono_ns, now_mono_ns);
        });
    }

    fn claims(&self, py: Python<'_>, key: usize) -> PyResult<Vec<IdClaim>> {
        let inner = lock(&self.inner);
        let claims = inner.claims(&self.ledger.get().lock(), key)?;
        let own = |claim: core::Claim| IdClaim {
            index: claim.index,
            id: PyBytes::new(py, &claim.id).unbind(),
            contents: PyBytes::new(py, &claim.contents).unbind(),
        };
        Ok(claims.into_iter().map(own).collect())
    }

    fn spent(&self, key: usize) -> PyResult<usize> {
        let inner = lock(&self.inner);
        Ok(inner.spent(&self.ledger.get().lock(), key)?)
    }

    fn duplicates(&self, key: usize) -> PyResult<(usize, usize)> {
        let inner = lock(&self.inner);
        Ok(inner.duplicates(&self.ledger.get().lock(), key)?)
    }

    #[pyo3(signature = (approved, grants = None, acl_versions = None))]
    fn dispatch(
        &self,
        py: Python<'_>,
        approved: Vec<(usize, u32, String, u32)>,
        grants: Option<Vec<u8>>,
        acl_versions: Option<Vec<u64>>,
    ) -> PyResult<Vec<Py<PlannedSend>>> {
        let (grants, acl_versions) = (grants.unwrap_or_default(), acl_versions.unwrap_or_default());
        let ledger = self.ledger.get();
        let approved: Vec<core::Approval> = approved
            .into_iter()
            .enumerate()
            .map(|(at, (key, queue, topic, once_ms))| {
                let (topic, grant) = (Arc::from(topic), grants.get(at).copied().unwrap_or(GRANT_UNLIMITED));
                let acl_version = acl_versions.get(at).copied().unwrap_or(0);
                core::Approval { key, destination: Destination { queue, topic, once_ms }, grant, acl_version }
            })
            .collect();
        let sends = py.detach(|| {
            let mut inner = lock(&self.inner);
            let sends = inner.dispatch(&mut ledger.lock(), &approved)?;
            let write = |send: Send| (send.queue, send.count, send.topics.to_vec(inner.frame()));
            Ok::<_, core::Misuse>(sends.into_iter().map(write).collect::<Vec<_>>())
        })?;
        sends
            .into_iter()
            .map(|(queue, count, topics)| PlannedSend::written(py, queue, count, &topics))
            .collect()
    }

    fn telemetry<'py>(&self, py: Python<'py>, settled_unix_ns: i64) -> Bound<'py, PyBytes> {
        let ledger = self.ledger.get();
        let written = py.detach(|| {
            let mut inner = lock(&self.inner);
            inner.telemetry(&ledger.lock(), settled_unix_ns)
        });
        PyBytes::new(py, &written)
    }
}
