//! Everything that thinks. Takes bytes and times, returns verdicts; knows nothing of Python.

pub mod canonical;
pub mod crypto;
pub mod wire;
