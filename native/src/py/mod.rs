//! The Python face of `core`: converts arguments and results, releases the GIL, decides nothing.
//!
//! Bad arguments are `ValueError`s; bad bytes from peers are verdicts wherever the stub says so.

use std::sync::{Mutex, MutexGuard, PoisonError};

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;

use crate::core::wire::Malformed;

mod admission;

mod arbitration;
mod dispatch;
mod ledger;
mod mailbox;
mod snapshot;

mod crypto;

#[pymodule]
fn _native(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add("SOURCE_DIGEST", env!("SNAVIO_SOURCE_DIGEST"))?;
    admission::register(module)?;

    ledger::register(module)?;
    dispatch::register(module)?;
    arbitration::register(module)?;
    mailbox::register(module)?;
    snapshot::register(module)?;

    crypto::register(module)?;

    Ok(())
}

impl From<Malformed> for PyErr {
    fn from(_: Malformed) -> Self {
        PyValueError::new_err("malformed message")
    }
}

/// Takes a lock that a panic elsewhere cannot take away from us: `core` leaves no half-made state behind.
fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
