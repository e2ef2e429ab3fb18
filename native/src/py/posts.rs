//! Posts for Python.

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::PyBytes;

use crate::core::frames::{FrameRefused, Limits};
use crate::core::posts as core;

type Letter = (String, String, Py<PyBytes>);

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(open_posts, module)?)?;
    module.add_function(wrap_pyfunction!(open_single, module)?)
}

#[pyfunction]
fn open_posts(py: Python<'_>, body: &[u8]) -> PyResult<Vec<(String, bool, Vec<Letter>)>> {
    let posts = py.detach(|| core::open_posts(body, &Limits::MESH));
    let posts = posts.map_err(|FrameRefused(code)| {
        PyValueError::new_err(format!("not the topics of a SendBatch: verdict {code}"))
    })?;
    let tell = |letter: core::Letter<'_>| {
        (letter.source.to_owned(), letter.id.to_owned(), PyBytes::new(py, &letter.run).unbind())
    };
    Ok(posts
        .into_iter()
        .map(|post| (post.topic.to_owned(), post.once, post.letters.into_iter().map(tell).collect()))
        .collect())
}

type Opened<'a> = (&'a str, &'a str, &'a str, &'a str, &'a str, &'a str, &'a [u8], &'a str, i64);

#[pyfunction]
fn open_single(letter: &[u8]) -> PyResult<Opened<'_>> {
    let message = core::open_single(letter).map_err(|_| PyValueError::new_err("not a single command"))?;
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
