//! Split batches for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::core::frames::{FrameRefused, Limits};
use crate::core::split as core;

type SplitCommand = (String, String, Py<PyBytes>);

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(split_batch, module)?)?;
    module.add_function(wrap_pyfunction!(read_single, module)?)
}

#[pyfunction]
fn split_batch(py: Python<'_>, body: &[u8]) -> PyResult<Vec<(String, bool, Vec<SplitCommand>)>> {
    let topics = py.detach(|| core::split_batch(body, &Limits::MESH));
    let topics = topics.map_err(|FrameRefused(code)| {
        PyValueError::new_err(format!("not the topics of a SendBatch: verdict {code}"))
    })?;
    let tell = |command: core::SplitCommand<'_>| {
        (command.source.to_owned(), command.id.to_owned(), PyBytes::new(py, &command.run).unbind())
    };
    Ok(topics
        .into_iter()
        .map(|topic| (topic.topic.to_owned(), topic.once, topic.commands.into_iter().map(tell).collect()))
        .collect())
}

type Opened<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, &'a str, &'a [u8], &'a str, i64);

#[pyfunction]
fn read_single(run: &[u8]) -> PyResult<Opened<'_>> {
    let message = core::read_single(run).map_err(|_| PyValueError::new_err("not a single command"))?;
    Ok((
        message.source,
        message.id,
        message.timestamp,
        message.target,
        message.name,
        message.content_type,
        message.payload,
        message.traceparent,
        message.admitted_unix_ns,
    ))
}
