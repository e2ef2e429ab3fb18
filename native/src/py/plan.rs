//! Plan for Python.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::ledger::Ledger;
use super::lock;
use super::part_buffer::{Body, PartBuffer};
use super::sampled::SampledCommand;
use crate::core::part_buffer as core_buffer;
use crate::core::plan as core;
use crate::core::reframer::Send;
use crate::core::sampled::Sampled;
use crate::core::telemetry::TelemetryBlock;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<PlannedSend>()?;
    module.add_class::<PlannedEscalation>()?;
    module.add_class::<WarmBan>()?;
    module.add_class::<Plan>()
}

/// One part for one queue: what it carries and how many commands that is.
#[pyclass(frozen, get_all, module = "snavio._native")]
pub struct PlannedSend {
    queue: u32,
    count: usize,
    body: Body,
}

impl PlannedSend {
    /// A part whose `SendBatch.topic` fields are written already.
    pub fn written(py: Python<'_>, queue: u32, count: usize, topics: &[u8]) -> PyResult<Py<Self>> {
        let body = Body::Bytes(PyBytes::new(py, topics).unbind());
        Py::new(py, Self { queue, count, body })
    }
}

/// One part for Slow: commands of one source.
#[pyclass(frozen, get_all, module = "snavio._native")]
struct PlannedEscalation {
    source: String,
    count: usize,
    body: Py<PyBytes>,
}

/// A ban that began with this plan, and the shares that caused it.
#[pyclass(frozen, get_all, module = "snavio._native")]
struct WarmBan {
    source: String,
    target: String,
    name: String,
    source_share: f64,
    competing_share: f64,
    volume: u64,
    ban_ns: i64,
    window_ns: i64,
}

#[pyclass(frozen, module = "snavio._native")]
pub struct Plan {
    #[pyo3(get)]
    pub ledger: Py<Ledger>,
    pub lessons: core::Lessons,
    #[pyo3(get)]
    budget_ms: u32,
    sends: Vec<Py<PlannedSend>>,
    #[pyo3(get)]
    escalated: usize,
    escalations: Vec<Py<PlannedEscalation>>,
    #[pyo3(get)]
    frame_code: u8,
    #[pyo3(get)]
    stale_used: bool,
    #[pyo3(get)]
    thirsty: bool,
    warm_bans: Vec<core::WarmBan>,
    block: Mutex<TelemetryBlock>,
    sampled: Sampled,
}

impl Plan {
    /// `frame` is the batch that was planned.
    pub fn wrap(py: Python<'_>, plan: core::Plan, frame: PyBackedBytes) -> PyResult<Self> {
        let send = |send: Send| {
            let pieces = core_buffer::PartBuffer::Pieces(send.topics);
            let body = Body::Buffer(PartBuffer::wrap(py, pieces, frame.clone_ref(py))?);
            Py::new(py, PlannedSend { queue: send.queue, count: send.count, body })
        };
        let escalation = |part: core::Escalated| {
            let body = PyBytes::new(py, &part.body).unbind();
            Py::new(py, PlannedEscalation { source: part.source.into_string(), count: part.count, body })
        };
        Ok(Self {
            ledger: Ledger::wrap(py, plan.ledger)?,
            lessons: plan.lessons,
            budget_ms: plan.budget_ms,
            sends: plan.sends.into_iter().map(send).collect::<PyResult<_>>()?,
            escalated: plan.escalated,
            escalations: plan.escalations.into_iter().map(escalation).collect::<PyResult<_>>()?,
            frame_code: plan.frame_code,
            stale_used: plan.stale_used,
            thirsty: plan.thirsty,
            warm_bans: plan.warm_bans,
            block: Mutex::new(plan.block),
            sampled: plan.sampled,
        })
    }
}

#[pymethods]
impl Plan {
    #[getter]
    fn sends(&self, py: Python<'_>) -> Vec<Py<PlannedSend>> {
        self.sends.iter().map(|send| send.clone_ref(py)).collect()
    }

    #[getter]
    fn escalations(&self, py: Python<'_>) -> Vec<Py<PlannedEscalation>> {
        self.escalations.iter().map(|escalation| escalation.clone_ref(py)).collect()
    }

    fn sampled(&self) -> Vec<SampledCommand> {
        SampledCommand::all(&self.sampled)
    }

    #[getter]
    fn teaches(&self) -> bool {
        !self.lessons.is_empty()
    }

    #[getter]
    fn warm_bans(&self) -> Vec<WarmBan> {
        let ban = |ban: &core::WarmBan| WarmBan {
            source: ban.source.to_string(),
            target: ban.target.to_string(),
            name: ban.name.to_string(),
            source_share: ban.dominance.source_share,
            competing_share: ban.dominance.competing_share,
            volume: ban.dominance.volume,
            ban_ns: ban.terms.ban_ns,
            window_ns: ban.terms.window_ns,
        };
        self.warm_bans.iter().map(ban).collect()
    }

    fn telemetry<'py>(&self, py: Python<'py>, settled_unix_ns: i64) -> Bound<'py, PyBytes> {
        let ledger = self.ledger.get();
        let written = py.detach(|| {
            // In this order everywhere, so that two threads cannot wait for each other.
            let mut block = lock(&self.block);
            block.settle(settled_unix_ns, &ledger.lock())
        });
        PyBytes::new(py, &written)
    }
}
