//! Plan for Python.

use std::sync::Mutex;

use pyo3::prelude::*;
use pyo3::pybacked::PyBackedBytes;
use pyo3::types::PyBytes;

use super::freight::Freight;
use super::ledger::Ledger;
use super::lock;
use crate::core::bundle::Send;
use crate::core::freight as core_freight;
use crate::core::plan as core;
use crate::core::telemetry::TelemetryBlock;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Plan>()
}

/// (queue, count, serialised `SendBatch.topic` fields).
pub type ToldSend = (u32, usize, Py<PyBytes>);

/// (queue, count, the same not yet written).
type Part = (u32, usize, Py<Freight>);

/// (source, count, serialised `ArbitrationBatch.escalation` fields).
type ToldEscalation = (String, usize, Py<PyBytes>);

/// (source, target, name, source share, competing share, volume, ban in nanoseconds, window in nanoseconds).
type ToldBan = (String, String, String, f64, f64, u64, i64, i64);

#[pyclass(frozen, module = "snavio._native")]
pub struct Plan {
    pub ledger: Py<Ledger>,
    pub lessons: core::Lessons,
    budget_ms: u32,
    freights: Vec<Part>,
    escalated: usize,
    escalations: Vec<ToldEscalation>,
    frame_code: u8,
    stale_used: bool,
    thirsty: bool,
    warm_bans: Vec<core::WarmBan>,
    block: Mutex<TelemetryBlock>,
}

impl Plan {
    /// `frame` is what was planned.
    pub fn wrap(py: Python<'_>, plan: core::Plan, frame: PyBackedBytes) -> PyResult<Self> {
        let part = |send: Send| {
            let pieces = core_freight::Freight::Pieces(send.topics);
            Ok((send.queue, send.count, Freight::wrap(py, pieces, frame.clone_ref(py))?))
        };
        let escalation = |told: core::Escalated| {
            (told.source.into_string(), told.count, PyBytes::new(py, &told.body).unbind())
        };
        Ok(Self {
            ledger: Ledger::wrap(py, plan.ledger)?,
            lessons: plan.lessons,
            budget_ms: plan.budget_ms,
            freights: plan.sends.into_iter().map(part).collect::<PyResult<_>>()?,
            escalated: plan.escalated,
            escalations: plan.escalations.into_iter().map(escalation).collect(),
            frame_code: plan.frame_code,
            stale_used: plan.stale_used,
            thirsty: plan.thirsty,
            warm_bans: plan.warm_bans,
            block: Mutex::new(plan.block),
        })
    }
}

#[pymethods]
impl Plan {
    #[getter]
    fn ledger(&self, py: Python<'_>) -> Py<Ledger> {
        self.ledger.clone_ref(py)
    }

    #[getter]
    fn budget_ms(&self) -> u32 {
        self.budget_ms
    }

    #[getter]
    fn freights(&self, py: Python<'_>) -> Vec<Part> {
        self.freights.iter().map(|(queue, count, freight)| (*queue, *count, freight.clone_ref(py))).collect()
    }

    #[getter]
    fn sends(&self, py: Python<'_>) -> PyResult<Vec<ToldSend>> {
        let write =
            |(queue, count, freight): &Part| Ok((*queue, *count, freight.get().to_bytes(py)?.unbind()));
        self.freights.iter().map(write).collect()
    }

    #[getter]
    fn escalated(&self) -> usize {
        self.escalated
    }

    #[getter]
    fn escalations(&self, py: Python<'_>) -> Vec<ToldEscalation> {
        let told = |(source, count, body): &ToldEscalation| (source.clone(), *count, body.clone_ref(py));
        self.escalations.iter().map(told).collect()
    }

    #[getter]
    fn frame_code(&self) -> u8 {
        self.frame_code
    }

    #[getter]
    fn stale_used(&self) -> bool {
        self.stale_used
    }

    #[getter]
    fn thirsty(&self) -> bool {
        self.thirsty
    }

    #[getter]
    fn teaches(&self) -> bool {
        !self.lessons.is_empty()
    }

    #[getter]
    fn warm_bans(&self) -> Vec<ToldBan> {
        let told = |ban: &core::WarmBan| {
            let [source, target, name] = [&ban.source, &ban.target, &ban.name].map(|text| text.to_string());
            let (shares, terms) = (&ban.dominance, ban.terms);
            let (mine, others) = (shares.source_share, shares.competing_share);
            (source, target, name, mine, others, shares.volume, terms.ban_ns, terms.window_ns)
        };
        self.warm_bans.iter().map(told).collect()
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
