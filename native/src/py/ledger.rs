//! Ledger, Reply and the headers of batches for Python.

use std::collections::HashMap;
use std::sync::{Mutex, MutexGuard};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::lock;
use crate::core::ledger as core;
use crate::core::timestamp;
use crate::core::verdict::UNDECIDED;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Ledger>()?;
    module.add_class::<Reply>()?;
    module.add_function(wrap_pyfunction!(read_verdicts, module)?)?;
    module.add_function(wrap_pyfunction!(batch_header, module)?)
}

/// Shared by the plan of a batch and the code that answers it.
#[pyclass(frozen, module = "snavio._native")]
pub struct Ledger {
    inner: Mutex<core::Ledger>,
}

impl Ledger {
    /// The Python object around a ledger that `core` made.
    pub fn wrap(py: Python<'_>, inner: core::Ledger) -> PyResult<Py<Self>> {
        Py::new(py, Self { inner: Mutex::new(inner) })
    }

    /// The ledger itself. Keep it no longer than one call.
    pub fn lock(&self) -> MutexGuard<'_, core::Ledger> {
        lock(&self.inner)
    }
}

#[pymethods]
impl Ledger {
    #[getter]
    fn batch_seq(&self) -> u64 {
        self.lock().batch_seq()
    }

    #[getter]
    fn count(&self) -> usize {
        self.lock().count()
    }

    #[getter]
    fn done(&self) -> bool {
        self.lock().done()
    }

    #[getter]
    fn codes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, self.lock().codes())
    }

    fn opening<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.lock().opening())
    }

    fn merge<'py>(&self, py: Python<'py>, part: usize, offset: u64, reply: &Reply) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.lock().merge(part, offset, &reply.inner))
    }

    fn close<'py>(
        &self,
        py: Python<'py>,
        code: u8,
        retry_after_ms: u32,
        detail: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        decided(code)?;
        Ok(PyBytes::new(py, &self.lock().close(code, retry_after_ms, detail)))
    }

    #[pyo3(signature = (codes, hints, places = None))]
    fn decide_each<'py>(
        &self,
        py: Python<'py>,
        codes: &[u8],
        hints: HashMap<u8, (u32, String)>,
        places: Option<&[u8]>,
    ) -> Bound<'py, PyBytes> {
        let explain = |code: u8| match hints.get(&code) {
            Some((retry_after_ms, detail)) => core::Refusal {
                retry_after_ms: *retry_after_ms,
                detail: detail.clone(),
                ..core::Refusal::default()
            },
            None => core::Refusal::default(),
        };
        let places = places.unwrap_or_default();
        PyBytes::new(py, &self.lock().decide_each(codes, explain, |index| place(places, index as usize)))
    }

    #[allow(clippy::too_many_arguments)] // The stub's signature.
    fn close_part<'py>(
        &self,
        py: Python<'py>,
        part: usize,
        first: usize,
        count: usize,
        code: u8,
        retry_after_ms: u32,
        detail: &str,
    ) -> PyResult<Bound<'py, PyBytes>> {
        decided(code)?;
        let answer = self.lock().close_part(part, first, count, code, retry_after_ms, detail);
        Ok(PyBytes::new(py, &answer))
    }
}

/// The sentence of one row of `places`: a message's id and when it was stored, 0 where that is not known.
fn place(places: &[u8], index: usize) -> String {
    let Some(row) = places.get(index * 16..index * 16 + 16) else { return String::new() };
    let number = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| row[at + byte]));
    let (message, stored_unix_ns) = (number(0), number(8) as i64);
    if message == 0 {
        return String::new();
    }
    if stored_unix_ns <= 0 {
        return format!("Stored as message {message}, before the mailbox last started.");
    }
    let stored = timestamp::format(stored_unix_ns);
    // Milliseconds are enough for people.
    let stored = std::str::from_utf8(&stored[..23]).unwrap_or_default();
    format!("Stored at {stored}Z as message {message}.")
}

/// 0 decides nothing: a caller who closes with it would wait for ever.
pub fn decided(code: u8) -> PyResult<()> {
    if code == UNDECIDED {
        return Err(PyValueError::new_err("code 0 decides nothing"));
    }
    Ok(())
}

/// A parsed Verdicts message.
#[pyclass(frozen, module = "snavio._native")]
pub struct Reply {
    inner: core::Reply,
}

#[pymethods]
impl Reply {
    #[getter]
    fn batch_seq(&self) -> u64 {
        self.inner.batch_seq
    }

    #[getter]
    fn first(&self) -> u32 {
        self.inner.first
    }

    #[getter]
    fn codes<'py>(&self, py: Python<'py>) -> Bound<'py, PyBytes> {
        PyBytes::new(py, &self.inner.codes)
    }

    #[getter(r#final)]
    fn last(&self) -> bool {
        self.inner.last
    }

    #[getter]
    fn is_hello(&self) -> bool {
        self.inner.is_hello
    }

    fn refusals(&self) -> Vec<(u32, u8, u32, i64, &str)> {
        self.inner
            .refusals
            .iter()
            .map(|refusal| {
                let core::Refusal { index, reason, retry_after_ms, throttle_until_unix_ns, detail, .. } =
                    refusal;
                (*index, *reason, *retry_after_ms, *throttle_until_unix_ns, detail.as_str())
            })
            .collect()
    }

    fn shares(&self) -> Vec<(u32, f64, f64, u32)> {
        self.inner
            .refusals
            .iter()
            .filter(|refusal| refusal.shares != core::Shares::default())
            .map(|refusal| {
                let core::Shares { source, competing, volume } = refusal.shares;
                (refusal.index, source, competing, volume)
            })
            .collect()
    }
}

#[pyfunction]
fn read_verdicts(frame: &[u8]) -> PyResult<Reply> {
    let inner = core::Reply::read(frame).map_err(|_| PyValueError::new_err("not a Verdicts message"))?;
    Ok(Reply { inner })
}

#[pyfunction]
fn batch_header(py: Python<'_>, batch_seq: u64, budget_ms: u32) -> Bound<'_, PyBytes> {
    PyBytes::new(py, &core::write_header(batch_seq, budget_ms))
}
