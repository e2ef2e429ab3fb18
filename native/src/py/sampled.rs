//! Sampled commands for Python.

use pyo3::prelude::*;

use crate::core::sampled as core;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<SampledCommand>()
}

/// What a span says of one command.
#[pyclass(frozen, get_all, module = "snavio._native")]
pub struct SampledCommand {
    index: u32,
    traceparent: String,
    id: String,
    timestamp: String,
    target: String,
    name: String,
}

impl SampledCommand {
    pub fn all(sampled: &core::Sampled) -> Vec<Self> {
        let told = |traced: &core::Traced| Self {
            index: traced.index,
            traceparent: traced.traceparent.clone(),
            id: traced.id.clone(),
            timestamp: traced.timestamp.clone(),
            target: traced.target.clone(),
            name: traced.name.clone(),
        };
        sampled.found().iter().map(told).collect()
    }
}
