//! Snapshots for Python.

use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::lock;
use crate::core::records::{BadRecord, Tables};
use crate::core::snapshot::{self as core, Unreadable};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SnapshotTables>()?;
    module.add_function(wrap_pyfunction!(snapshot_header, module)?)?;
    module.add_function(wrap_pyfunction!(snapshot_suspensions, module)?)
}

impl From<Unreadable> for PyErr {
    fn from(error: Unreadable) -> Self {
        PyValueError::new_err(error.to_string())
    }
}

impl From<BadRecord> for PyErr {
    fn from(error: BadRecord) -> Self {
        PyValueError::new_err(error.to_string())
    }
}

/// Routes, ACL, suspensions, bans and terms, each a part.
type Parts = (Py<PyBytes>, Py<PyBytes>, Py<PyBytes>, Py<PyBytes>, Py<PyBytes>);

#[pyclass(frozen, module = "snavio._native")]
struct SnapshotTables {
    inner: Mutex<Tables>,
}

#[pymethods]
impl SnapshotTables {
    #[new]
    fn new() -> Self {
        Self { inner: Mutex::default() }
    }

    fn add(&self, py: Python<'_>, kind: &str, records: &[u8]) -> PyResult<usize> {
        Ok(py.detach(|| lock(&self.inner).add(kind, records))?)
    }

    #[pyo3(signature = (*, version, epoch))]
    fn parts(&self, py: Python<'_>, version: u64, epoch: u64) -> PyResult<Parts> {
        let written = py.detach(|| lock(&self.inner).write(version, epoch))?;
        let [routes, acl, suspensions, bans, terms] = written.map(|part| PyBytes::new(py, &part).unbind());
        Ok((routes, acl, suspensions, bans, terms))
    }
}

/// (kind, version, epoch, rows) as a part says of itself.
#[pyfunction]
#[pyo3(signature = (part))]
fn snapshot_header(part: &[u8]) -> PyResult<(&'static str, u64, u64, u32)> {
    let header = core::Header::read(part)?;
    Ok((header.kind.name(), header.version, header.epoch, header.rows))
}

/// Sources of a suspensions part.
#[pyfunction]
#[pyo3(signature = (part))]
fn snapshot_suspensions(py: Python<'_>, part: &[u8]) -> PyResult<Vec<String>> {
    Ok(py.detach(|| core::suspended(part))?)
}
