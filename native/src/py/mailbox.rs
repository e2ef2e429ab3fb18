//! Sending, slices of stored runs, and leased batches for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyInt, PyList, PyString, PyTuple};

use super::ledger::Ledger;
use super::sampled::SampledCommand;
use super::without_gil_if_large;
use crate::core::frames::Limits;
use crate::core::leased_batches;
use crate::core::sampled::Sampled;
use crate::core::seals;
use crate::core::sending as core;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Received>()?;
    module.add_class::<Sending>()?;
    module.add_function(wrap_pyfunction!(slice_runs, module)?)?;
    module.add_function(wrap_pyfunction!(seal_runs, module)?)?;
    module.add_function(wrap_pyfunction!(salvage_runs, module)?)?;
    module.add_function(wrap_pyfunction!(frame_leased_batch, module)?)?;
    module.add_function(wrap_pyfunction!(read_leased_batches, module)?)
}

/// One message of a ReceiveResponse. Numbers that its reader asks for again and again are Python's already: reading
/// them costs no conversion.
#[pyclass(frozen, get_all, module = "snavio._native")]
struct Received {
    msg_id: Py<PyInt>,
    attempt: Py<PyInt>,
    stored_unix_ns: i64,
    source: Py<PyString>,
    id: Py<PyString>,
    timestamp: Py<PyString>,
    target: Py<PyString>,
    name: Py<PyString>,
    content_type: Py<PyString>,
    payload: Py<PyBytes>,
    traceparent: Py<PyString>,
    admitted_unix_ns: i64,
    idem_key: Py<PyString>,
    attrs: Py<PyTuple>,
    shard: u32,
    integrity: Py<PyInt>,
}

#[pyclass(frozen, module = "snavio._native")]
struct Sending {
    ledger: Py<Ledger>,
    budget_ms: u32,
    frame_code: u8,
    topics: Vec<(Py<PyString>, usize, Py<PyBytes>)>,
    keys: Vec<Py<PyBytes>>,
    once_ms: Vec<u32>,
    sampled: Sampled,
}

#[pymethods]
impl Sending {
    #[staticmethod]
    #[pyo3(signature = (
        frame,
        max_batch_bytes = Limits::MESH.max_batch_bytes,
        max_batch_commands = Limits::MESH.max_batch_commands,
        secret = [0; 32],
    ))]
    fn open(
        py: Python<'_>,
        frame: &[u8],
        max_batch_bytes: usize,
        max_batch_commands: usize,
        secret: [u8; 32],
    ) -> PyResult<Self> {
        let limits = Limits { max_batch_bytes, max_batch_commands };
        let (inner, ledger) =
            without_gil_if_large(py, frame.len(), || core::Sending::open(frame, &limits, &secret));
        let keys = inner.topics.iter().map(|entry| PyBytes::new(py, &entry.keys).unbind()).collect();
        let once_ms = inner.topics.iter().map(|entry| entry.once_ms).collect();
        let tell = |entry: core::TopicRuns| {
            let topic = PyString::new(py, &entry.topic).unbind();
            let runs = PyBytes::new_with(py, entry.runs.len(), |out| {
                entry.runs.write(frame, out);
                Ok(())
            })?;
            Ok((topic, entry.count, runs.unbind()))
        };
        let topics: PyResult<Vec<_>> = inner.topics.into_iter().map(tell).collect();
        Ok(Self {
            ledger: Ledger::wrap(py, ledger)?,
            budget_ms: inner.header.budget_ms,
            frame_code: inner.frame_code,
            topics: topics?,
            keys,
            once_ms,
            sampled: inner.sampled,
        })
    }

    fn sampled(&self) -> Vec<SampledCommand> {
        SampledCommand::all(&self.sampled)
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

    #[getter]
    fn keys(&self, py: Python<'_>) -> Vec<Py<PyBytes>> {
        self.keys.iter().map(|keys| keys.clone_ref(py)).collect()
    }

    #[getter]
    fn once_ms(&self) -> Vec<u32> {
        self.once_ms.clone()
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
fn seal_runs<'py>(py: Python<'py>, runs: &[u8], context: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let sealed = py.detach(|| seals::seal_runs(runs, context));
    Ok(PyBytes::new(py, &sealed.map_err(|_| PyValueError::new_err("not stored runs"))?))
}

#[pyfunction]
fn salvage_runs<'py>(
    py: Python<'py>,
    body: &[u8],
    count: usize,
    context: &[u8],
) -> (Bound<'py, PyBytes>, Vec<bool>) {
    let (runs, damaged) = py.detach(|| seals::salvage(body, count, context));
    (PyBytes::new(py, &runs), damaged)
}

#[pyfunction]
#[pyo3(signature = (runs, *, topic, batch_id, first, attempt, stored_unix_ns, shard))]
#[allow(clippy::too_many_arguments)] // The stub's signature.
fn frame_leased_batch<'py>(
    py: Python<'py>,
    runs: &[u8],
    topic: &str,
    batch_id: u64,
    first: u32,
    attempt: u32,
    stored_unix_ns: i64,
    shard: u32,
) -> Bound<'py, PyBytes> {
    let leased = leased_batches::Leased { topic, batch_id, first, attempt, stored_unix_ns, shard };
    PyBytes::new(py, &py.detach(|| leased_batches::frame_leased_batch(&leased, runs)))
}

#[pyfunction]
#[pyo3(signature = (response, topic = None))]
fn read_leased_batches<'py>(
    py: Python<'py>,
    response: &[u8],
    topic: Option<&str>,
) -> PyResult<(u64, Bound<'py, PyList>)> {
    let opened = py.detach(|| leased_batches::read_leased_batches(response, topic));
    let (boot_epoch, messages) = opened.map_err(|_| PyValueError::new_err("not a ReceiveResponse"))?;
    let [mut sources, mut targets, mut names, mut types, mut traces, mut keys] =
        std::array::from_fn(|_| Repeated::default());
    let told = PyList::empty(py);
    let no_attrs = PyTuple::empty(py);
    for message in messages {
        let attrs = match message.attrs.as_slice() {
            [] => no_attrs.clone(),
            attrs => PyTuple::new(py, attrs)?,
        };
        told.append(Bound::new(
            py,
            Received {
                msg_id: message.msg_id.into_pyobject(py)?.unbind(),
                attempt: message.attempt.into_pyobject(py)?.unbind(),
                stored_unix_ns: message.stored_unix_ns,
                source: sources.tell(py, message.source).unbind(),
                id: PyString::new(py, message.id).unbind(),
                timestamp: PyString::new(py, message.timestamp).unbind(),
                target: targets.tell(py, message.target).unbind(),
                name: names.tell(py, message.name).unbind(),
                content_type: types.tell(py, message.content_type).unbind(),
                payload: PyBytes::new(py, message.payload).unbind(),
                traceparent: traces.tell(py, message.traceparent).unbind(),
                admitted_unix_ns: message.admitted_unix_ns,
                idem_key: keys.tell(py, message.idem_key).unbind(),
                attrs: attrs.unbind(),
                shard: message.shard,
                integrity: (message.integrity as u8).into_pyobject(py)?.unbind(),
            },
        )?)?;
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
