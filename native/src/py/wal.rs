//! The walk over a write-ahead log for Python.

use std::sync::Mutex;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use super::lock;
use crate::core::wal::{Walk, resealed};

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<WalWalk>()?;
    module.add_function(wrap_pyfunction!(reseal_wal, module)?)
}

#[pyclass(frozen, module = "snavio._native")]
struct WalWalk(Mutex<Walk>);

#[pymethods]
impl WalWalk {
    #[new]
    fn new(header: &[u8]) -> PyResult<Self> {
        let walk = Walk::new(header).ok_or_else(|| PyValueError::new_err("not the header of a log"))?;
        Ok(Self(Mutex::new(walk)))
    }

    #[staticmethod]
    fn header_flip(header: &[u8]) -> Option<(u64, u8)> {
        Walk::header_flip(header)
    }

    #[getter]
    fn frame_bytes(&self) -> usize {
        lock(&self.0).frame_bytes()
    }

    #[getter]
    fn committed_end(&self) -> u64 {
        lock(&self.0).committed_end()
    }

    #[getter]
    fn committed(&self) -> u64 {
        lock(&self.0).committed()
    }

    #[getter]
    fn behind(&self) -> u64 {
        lock(&self.0).behind()
    }

    #[getter]
    fn behind_end(&self) -> u64 {
        lock(&self.0).behind_end()
    }

    #[getter]
    fn damage(&self) -> Option<(u64, Option<(u64, u8)>)> {
        lock(&self.0).damage().map(|damage| (damage.offset, damage.flip))
    }

    fn feed(&self, py: Python<'_>, frames: &[u8]) {
        py.detach(|| lock(&self.0).feed(frames));
    }
}

#[pyfunction]
fn reseal_wal<'py>(py: Python<'py>, log: &[u8], end: usize) -> PyResult<Bound<'py, PyBytes>> {
    let sealed = py.detach(|| resealed(log, end));
    Ok(PyBytes::new(py, &sealed.ok_or_else(|| PyValueError::new_err("not a log"))?))
}
