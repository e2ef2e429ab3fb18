//! Arbitration for Python.

use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::dispatch::{ToldSend, told};
use super::ledger::{Ledger, decided};
use super::lock;
use crate::core::arbitration as core;
use crate::core::frames::Limits;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Arbitration>()
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

    fn keys(&self) -> Vec<(String, String, String, u8)> {
        let own = |(source, target, name, reason): (&str, &str, &str, u8)| {
            (source.to_owned(), target.to_owned(), name.to_owned(), reason)
        };
        lock(&self.inner).keys().into_iter().map(own).collect()
    }

    fn refuse<'py>(
        &self,
        py: Python<'py>,
        key: usize,
        code: u8,
        retry_after_ms: u32,
        detail: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        decided(code)?;
        let inner = lock(&self.inner);
        let answer = inner.refuse(&mut self.ledger.get().lock(), key, code, retry_after_ms, detail)?;
        Ok(PyBytes::new(py, &answer))
    }

    fn dispatch(&self, py: Python<'_>, approved: Vec<(usize, u32, String)>) -> PyResult<Vec<ToldSend>> {
        let ledger = self.ledger.get();
        let sends = py.detach(|| {
            let mut inner = lock(&self.inner);
            inner.dispatch(&mut ledger.lock(), &approved)
        })?;
        Ok(sends.into_iter().map(|send| told(py, send)).collect())
    }

    fn telemetry<'py>(&self, py: Python<'py>, settled_unix_ns: i64) -> Bound<'py, PyBytes> {
        let ledger = self.ledger.get();
        let written = py.detach(|| {
            let inner = lock(&self.inner);
            inner.telemetry(&ledger.lock(), settled_unix_ns)
        });
        PyBytes::new(py, &written)
    }
}
