//! Freight and whole frames for Python.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::core::freight::{self as core, Pieces, put};
use crate::core::ledger::write_header;

/// Above this, letting go of the GIL costs less than what others could do meanwhile.
const LARGE: usize = 64 << 10;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Freight>()?;
    module.add_function(wrap_pyfunction!(batch_frame, module)?)
}

/// What a consignment carries, with the frame that stretches of it are of.
#[pyclass(frozen, module = "snavio._native")]
pub struct Freight {
    inner: core::Freight,
    frame: Option<PyBackedBytes>,
}

impl Freight {
    /// Who waits is counted by what it will send. With much of its frame refused, one that kept the frame would hold
    /// many times that: then it is written at once, and the frame let go.
    pub fn wrap(py: Python<'_>, inner: core::Freight, frame: PyBackedBytes) -> PyResult<Py<Self>> {
        if inner.len() < frame.len() / 4 * 3 {
            return Self::own(py, inner.to_vec(&frame));
        }
        Py::new(py, Self { inner, frame: Some(frame) })
    }

    /// Freight that is all our own.
    pub fn own(py: Python<'_>, bytes: Vec<u8>) -> PyResult<Py<Self>> {
        Py::new(py, Self { inner: core::Freight::Pieces(Pieces::from(bytes)), frame: None })
    }

    fn write(&self, out: &mut [u8]) {
        self.inner.write(self.frame.as_deref().unwrap_or_default(), out);
    }

    pub fn to_vec(&self) -> Vec<u8> {
        self.inner.to_vec(self.frame.as_deref().unwrap_or_default())
    }

    pub fn to_bytes<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        PyBytes::new_with(py, self.inner.len(), |out| {
            self.write(out);
            Ok(())
        })
    }
}

#[pymethods]
impl Freight {
    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.to_bytes(py)
    }
}

/// What stands in a frame behind its header.
#[derive(FromPyObject)]
enum Body {
    Freight(Py<Freight>),
    Bytes(PyBackedBytes),
}

impl Body {
    fn len(&self) -> usize {
        match self {
            Self::Freight(freight) => freight.get().inner.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    fn write(&self, out: &mut [u8]) {
        match self {
            Self::Freight(freight) => freight.get().write(out),
            Self::Bytes(bytes) => {
                put(out, bytes);
            }
        }
    }
}

/// A batch message: its header, then `bodies`, each copied once.
#[pyfunction]
fn batch_frame(
    py: Python<'_>,
    batch_seq: u64,
    budget_ms: u32,
    bodies: Vec<Body>,
) -> PyResult<Bound<'_, PyBytes>> {
    let header = write_header(batch_seq, budget_ms);
    let length = header.len() + bodies.iter().map(Body::len).sum::<usize>();
    let compose = |mut out: &mut [u8]| {
        out = put(out, &header);
        for body in &bodies {
            let (place, rest) = out.split_at_mut(body.len().min(out.len()));
            body.write(place);
            out = rest;
        }
    };
    PyBytes::new_with(py, length, |out| {
        if length < LARGE {
            compose(out)
        } else {
            py.detach(|| compose(out))
        }
        Ok(())
    })
}
