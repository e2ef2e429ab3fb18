//! Binds canonical JSON, Ed25519, BLAKE3 and ids.

use pyo3::exceptions::{PyOSError, PyValueError};
use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::{PyBytes, PyDict};

use super::without_gil_if_large;
use crate::core::canonical::{CanonicalError, canonicalise};
use crate::core::crypto::{self, BadSeed};

impl From<CanonicalError> for PyErr {
    fn from(error: CanonicalError) -> Self {
        PyValueError::new_err(error.to_string())
    }
}

impl From<BadSeed> for PyErr {
    fn from(error: BadSeed) -> Self {
        PyValueError::new_err(error.to_string())
    }
}

/// RFC 8785. Raises ValueError on duplicate keys, integers from 2^53, NaN, lone surrogates and bad JSON.
#[pyfunction]
#[pyo3(signature = (document))]
fn canonical_json<'py>(py: Python<'py>, document: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let canonical = without_gil_if_large(py, document.len(), || canonicalise(document))?;
    Ok(PyBytes::new(py, &canonical))
}

/// The public key of a 32-byte seed.
#[pyfunction]
#[pyo3(signature = (seed))]
fn ed25519_public_key<'py>(py: Python<'py>, seed: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    Ok(PyBytes::new(py, &crypto::ed25519_public_key(seed)?))
}

/// Signs `message` with a 32-byte seed.
#[pyfunction]
#[pyo3(signature = (seed, message))]
fn ed25519_sign<'py>(py: Python<'py>, seed: &[u8], message: &[u8]) -> PyResult<Bound<'py, PyBytes>> {
    let signature = without_gil_if_large(py, message.len(), || crypto::ed25519_sign(seed, message))?;
    Ok(PyBytes::new(py, &signature))
}

/// Signs every message with one 32-byte seed.
#[pyfunction]
#[pyo3(signature = (seed, messages))]
fn ed25519_sign_batch<'py>(
    py: Python<'py>,
    seed: &[u8],
    messages: Vec<PyBackedBytes>,
) -> PyResult<Vec<Bound<'py, PyBytes>>> {
    let signed = py.detach(|| crypto::ed25519_sign_batch(seed, &messages))?;
    Ok(signed.iter().map(|signature| PyBytes::new(py, signature)).collect())
}

/// True for a public key under which no signature means anything: small order, not canonical, not 32 bytes.
#[pyfunction]
#[pyo3(signature = (public_key))]
fn ed25519_is_weak(public_key: &[u8]) -> bool {
    crypto::ed25519_is_weak(public_key)
}

/// Strict: small-order keys and non-canonical points are refused. False, never an exception, on bad lengths.
#[pyfunction]
#[pyo3(signature = (public_key, message, signature))]
fn ed25519_verify(py: Python<'_>, public_key: &[u8], message: &[u8], signature: &[u8]) -> bool {
    without_gil_if_large(py, message.len(), || crypto::ed25519_verify(public_key, message, signature))
}

/// BLAKE3 in lower-case hex.
#[pyfunction]
#[pyo3(signature = (message))]
fn blake3_hex(py: Python<'_>, message: &[u8]) -> String {
    without_gil_if_large(py, message.len(), || crypto::blake3_hex(message))
}

/// BLAKE3, 32 bytes.
#[pyfunction]
#[pyo3(signature = (message))]
fn blake3_digest<'py>(py: Python<'py>, message: &[u8]) -> Bound<'py, PyBytes> {
    let digest = without_gil_if_large(py, message.len(), || crypto::blake3_digest(message));
    PyBytes::new(py, &digest)
}

/// Time-ordered UUID in lower-case text; monotonic within the process.
#[pyfunction]
#[pyo3(signature = ())]
fn uuid7() -> PyResult<String> {
    // Keeps the GIL, so that a fork never finds the lock taken.
    let id = crypto::uuid7().map_err(|error| PyOSError::new_err(error.to_string()))?;
    Ok(crypto::uuid_text(&id))
}

#[pyfunction]
fn forget_uuid7_randomness() {
    crypto::forget_uuid7_randomness();
}

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_function(wrap_pyfunction!(canonical_json, module)?)?;
    module.add_function(wrap_pyfunction!(ed25519_public_key, module)?)?;
    module.add_function(wrap_pyfunction!(ed25519_sign, module)?)?;
    module.add_function(wrap_pyfunction!(ed25519_sign_batch, module)?)?;
    module.add_function(wrap_pyfunction!(ed25519_verify, module)?)?;
    module.add_function(wrap_pyfunction!(ed25519_is_weak, module)?)?;
    module.add_function(wrap_pyfunction!(blake3_hex, module)?)?;
    module.add_function(wrap_pyfunction!(blake3_digest, module)?)?;
    module.add_function(wrap_pyfunction!(uuid7, module)?)?;
    forget_in_forked_children(module)
}

fn forget_in_forked_children(module: &Bound<'_, PyModule>) -> PyResult<()> {
    let os = module.py().import("os")?;
    if os.hasattr("register_at_fork")? {
        let hook = PyDict::new(module.py());
        hook.set_item("after_in_child", wrap_pyfunction!(forget_uuid7_randomness, module)?)?;
        os.call_method("register_at_fork", (), Some(&hook))?;
    }
    Ok(())
}
