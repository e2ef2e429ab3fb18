//! The Python face of `core`: converts arguments and results, releases the GIL, decides nothing.
//!
//! Bad arguments are `ValueError`s; bad bytes from peers are verdicts wherever the stub says so. A panic is a
//! `snavio.errors.NativeFault`.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::panic::PanicException;
use pyo3::prelude::*;
use pyo3::type_object::PyTypeInfo;

use crate::core::frames::Limits;
use crate::core::wire::Malformed;

mod admission;

mod arbitration;
mod dispatch;
mod ledger;
mod mailbox;
mod new_messages;
mod part_buffer;
mod plan;
mod replay;
mod sampled;
mod snapshot;
mod split;
mod telemetry;
mod wal;

mod crypto;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SOURCE_DIGEST", env!("SNAVIO_SOURCE_DIGEST"))?;
    module.add("MESH_BATCH_BYTES", Limits::MESH.max_batch_bytes)?;
    module.add("MESH_BATCH_COMMANDS", Limits::MESH.max_batch_commands)?;
    admission::register(module)?;

    ledger::register(module)?;
    part_buffer::register(module)?;
    new_messages::register(module)?;
    dispatch::register(module)?;
    plan::register(module)?;
    arbitration::register(module)?;
    mailbox::register(module)?;
    split::register(module)?;
    replay::register(module)?;
    sampled::register(module)?;
    snapshot::register(module)?;
    telemetry::register(module)?;
    wal::register(module)?;

    crypto::register(module)?;

    module.add_function(wrap_pyfunction!(panic_for_test, module)?)?;
    make_panics_exceptions(module.py())
}

/// Makes a panic arrive in Python as an `Exception`.
///
/// `PanicException` is a `BaseException`: it would pass every `except Exception` that keeps a thread, a stream or a
/// loop going, and end it without a word to those who wait for its answers. Its base is exchanged once, at import, so
/// that no call pays for it.
fn make_panics_exceptions(py: Python<'_>) -> PyResult<()> {
    let fault = py.import("snavio.errors")?.getattr("NativeFault")?;
    PanicException::type_object(py).setattr("__bases__", (fault,))
}

/// Panics, so that a test can see as what that arrives; `detached` without the GIL, as most work is done.
#[pyfunction]
#[allow(clippy::panic)] // What it is for.
fn panic_for_test(py: Python<'_>, detached: bool) {
    if detached {
        py.detach(|| panic!("on purpose, detached"));
    }
    panic!("on purpose");
}

impl From<Malformed> for PyErr {
    fn from(_: Malformed) -> Self {
        PyValueError::new_err("malformed message")
    }
}

/// Above this the work outweighs giving up the GIL and queueing for it again.
const DETACH_FROM_BYTES: usize = 4096;

fn without_gil_if_large<T: Send>(py: Python<'_>, bytes: usize, work: impl FnOnce() -> T + Send) -> T {
    if bytes >= DETACH_FROM_BYTES { py.detach(work) } else { work() }
}

/// Takes a lock that a panic elsewhere cannot take away from us: `core` leaves no half-made state behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
