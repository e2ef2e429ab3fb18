//! Part buffers and whole frames for Python.

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use crate::core::ledger::write_header;
use crate::core::part_buffer::{self as core, Pieces, put};

/// Above this, letting go of the GIL costs less than what others could do meanwhile.
const LARGE: usize = 64 << 10;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PartBuffer>()?;
    module.add_function(wrap_pyfunction!(batch_frame, module)?)
}

/// The commands of one batch part, with the frame that stretches of them are of.
#[pyclass(frozen, module = "snavio._native")]
pub struct PartBuffer {
    inner: core::PartBuffer,
    frame: Option<PyBackedBytes>,
}

impl PartBuffer {
    /// A waiting part counts by the bytes that it will send. With much of its frame refused, a part that kept the frame
    /// would hold many times that: then it is written at once, and the frame is released.
    pub fn wrap(py: Python<'_>, inner: core::PartBuffer, frame: PyBackedBytes) -> PyResult<Py<Self>> {
        if inner.len() < frame.len() / 4 * 3 {
            return Self::own(py, inner.to_vec(&frame));
        }
        Py::new(py, Self { inner, frame: Some(frame) })
    }

    /// A buffer without a frame.
    pub fn own(py: Python<'_>, bytes: Vec<u8>) -> PyResult<Py<Self>> {
        Py::new(py, Self { inner: core::PartBuffer::Pieces(Pieces::from(bytes)), frame: None })
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
impl PartBuffer {
    fn __len__(&self) -> usize {
        self.inner.len()
    }

    fn __bytes__<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyBytes>> {
        self.to_bytes(py)
    }
}

/// The body of one part, as Python holds it.
#[derive(IntoPyObjectRef)]
pub enum Body {
    Buffer(Py<PartBuffer>),
    Bytes(Py<PyBytes>),
}

/// The same, as `batch_frame` takes it.
#[derive(FromPyObject)]
enum FrameBody {
    PartBuffer(Py<PartBuffer>),
    Bytes(PyBackedBytes),
}

impl FrameBody {
    fn len(&self) -> usize {
        match self {
            Self::PartBuffer(buffer) => buffer.get().inner.len(),
            Self::Bytes(bytes) => bytes.len(),
        }
    }

    fn write(&self, out: &mut [u8]) {
        match self {
            Self::PartBuffer(buffer) => buffer.get().write(out),
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
    bodies: Vec<FrameBody>,
) -> PyResult<Bound<'_, PyBytes>> {
    let header = write_header(batch_seq, budget_ms);
    let length = header.len() + bodies.iter().map(FrameBody::len).sum::<usize>();
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
