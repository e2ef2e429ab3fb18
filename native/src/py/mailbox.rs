//! Sending, slices of stored runs, and received parcels for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyList, PyString};

use super::ledger::Ledger;
use crate::core::frames::Limits;
use crate::core::parcels::{self, Received};
use crate::core::sending as core;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Sending>()?;
    module.add_function(wrap_pyfunction!(slice_runs, module)?)?;
    module.add_function(wrap_pyfunction!(open_parcels, module)?)
}

#[pyclass(frozen, module = "snavio._native")]
struct Sending {
    ledger: Py<Ledger>,
    budget_ms: u32,
    frame_code: u8,
    topics: Vec<(Py<PyString>, usize, Py<PyBytes>)>,
}

#[pymethods]
impl Sending {
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
        let (inner, ledger) = py.detach(|| core::Sending::open(frame, &limits));
        let tell = |entry: core::TopicRuns| {
            let topic = PyString::new(py, &entry.topic).unbind();
            (topic, entry.count, PyBytes::new(py, &entry.runs).unbind())
        };
        Ok(Self {
            ledger: Ledger::wrap(py, ledger)?,
            budget_ms: inner.header.budget_ms,
            frame_code: inner.frame_code,
            topics: inner.topics.into_iter().map(tell).collect(),
        })
    }

    #[getter]
    fn ledger(&self, py: Python<'_>) -> Py<Ledger> {
        self.ledger.clone_ref(py)
    }

    #[getter]
    fn budget_ms(&self) -> u32 {
        self.budget_ms
    }

    #[getter]
    fn frame_code(&self) -> u8 {
        self.frame_code
    }

    #[getter]
    fn topics(&self, py: Python<'_>) -> Vec<(Py<PyString>, usize, Py<PyBytes>)> {
        let share = |(topic, count, runs): &(Py<PyString>, usize, Py<PyBytes>)| {
            (topic.clone_ref(py), *count, runs.clone_ref(py))
        };
        self.topics.iter().map(share).collect()
    }
}

#[pyfunction]
fn slice_runs<'py>(
    py: Python<'py>,
    runs: &[u8],
    first: usize,
    count: usize,
) -> PyResult<Bound<'py, PyBytes>> {
    let sliced = py.detach(|| core::slice_runs(runs, first, count));
    let sliced =
        sliced.map_err(|_| PyValueError::new_err("not stored runs, or fewer commands than asked for"))?;
    Ok(PyBytes::new(py, &sliced))
}

#[pyfunction]
fn open_parcels<'py>(py: Python<'py>, response: &[u8]) -> PyResult<(u64, Bound<'py, PyList>)> {
    let opened = py.detach(|| parcels::open_parcels(response));
    let (boot_epoch, messages) = opened.map_err(|_| PyValueError::new_err("not a ReceiveResponse"))?;
    let [mut sources, mut targets, mut names, mut types, mut traces] =
        std::array::from_fn(|_| Repeated::default());
    let told = PyList::empty(py);
    for message in messages {
        let Received { msg_id, attempt, stored_unix_ns, id, timestamp, payload, admitted_unix_ns, .. } =
            message;
        told.append((
            msg_id,
            attempt,
            stored_unix_ns,
            sources.tell(py, message.source),
            id,
            timestamp,
            targets.tell(py, message.target),
            names.tell(py, message.name),
            types.tell(py, message.content_type),
            PyBytes::new(py, payload),
            traces.tell(py, message.traceparent),
            admitted_unix_ns,
        ))?;
    }
    Ok((boot_epoch, told))
}

/// A string that is mostly the same from message to message: one Python object for all of them.
#[derive(Default)]
struct Repeated<'a, 'py> {
    last: Option<(&'a str, Bound<'py, PyString>)>,
}

impl<'a, 'py> Repeated<'a, 'py> {
    fn tell(&mut self, py: Python<'py>, text: &'a str) -> Bound<'py, PyString> {
        match &self.last {
            Some((last, object)) if *last == text => object.clone(),
            _ => {
                let object = PyString::new(py, text);
                self.last = Some((text, object.clone()));
                object
            }
        }
    }
}
