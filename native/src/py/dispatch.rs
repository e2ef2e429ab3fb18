//! Dispatch and Plan for Python.

use std::sync::Arc;

use pyo3::exceptions::PyValueError;
use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyDict};

use super::ledger::Ledger;
use crate::core::bundle::Send;
use crate::core::dispatch as core;
use crate::core::frames::Limits;
use crate::core::telemetry::TelemetryBlock;

pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    module.add_class::<Dispatch>()?;
    module.add_class::<Plan>()
}

#[pyclass(frozen, module = "snavio._native")]
struct Dispatch {
    inner: core::Dispatch,
}

#[pymethods]
impl Dispatch {
    #[new]
    #[pyo3(signature = (
        *,
        max_batch_bytes = Limits::MESH.max_batch_bytes,
        max_batch_commands = Limits::MESH.max_batch_commands,
        route_fresh_ms = 60_000,
        route_stale_ms = 180_000,
    ))]
    fn new(
        max_batch_bytes: usize,
        max_batch_commands: usize,
        route_fresh_ms: u32,
        route_stale_ms: u32,
    ) -> PyResult<Self> {
        if route_fresh_ms > route_stale_ms {
            return Err(PyValueError::new_err("route_fresh_ms is longer than route_stale_ms"));
        }
        let limits = Limits { max_batch_bytes, max_batch_commands };
        let [fresh_ns, stale_ns] = [route_fresh_ms, route_stale_ms].map(|ms| i64::from(ms) * 1_000_000);
        Ok(Self { inner: core::Dispatch::new(limits, core::RoutePhases { fresh_ns, stale_ns }) })
    }

    #[pyo3(signature = (target, name, *, queue, topic, profile, strict))]
    fn put_route(&self, target: &str, name: &str, queue: u32, topic: &str, profile: u32, strict: bool) {
        let profile = core::Profile::from_wire(profile);
        let route = core::Route { queue, topic: Arc::from(topic), profile, strict };
        self.inner.put_route(target, name, route);
    }

    fn drop_route(&self, target: &str, name: &str) {
        self.inner.drop_route(target, name);
    }

    fn allow(&self, source: &str, target: &str, name: &str, version: u64) {
        self.inner.allow(source, target, name, version);
    }

    fn deny(&self, source: &str, target: &str, name: &str) {
        self.inner.deny(source, target, name);
    }

    fn clear(&self, py: Python<'_>) {
        py.detach(|| self.inner.clear());
    }

    #[pyo3(signature = (routes_part, acl_part, *, now_unix_ns = 0))]
    fn load_snapshot(
        &self,
        py: Python<'_>,
        routes_part: &[u8],
        acl_part: &[u8],
        now_unix_ns: u64,
    ) -> PyResult<u64> {
        Ok(py.detach(|| self.inner.load_snapshot(routes_part, acl_part, now_unix_ns))?)
    }

    fn renewed(&self, read_mono_ns: i64) {
        self.inner.renewed(read_mono_ns);
    }

    #[pyo3(signature = (batch, *, now_mono_ns))]
    fn plan(&self, py: Python<'_>, batch: &[u8], now_mono_ns: i64) -> PyResult<Plan> {
        let plan = py.detach(|| self.inner.plan(batch, now_mono_ns));
        Ok(Plan {
            ledger: Ledger::wrap(py, plan.ledger)?,
            budget_ms: plan.budget_ms,
            sends: plan.sends.into_iter().map(|send| told(py, send)).collect(),
            escalated: plan.escalated,
            escalations: PyBytes::new(py, &plan.escalations).unbind(),
            frame_code: plan.frame_code,
            stale_used: plan.stale_used,
            block: plan.block,
        })
    }

    fn counters<'py>(&self, py: Python<'py>) -> PyResult<Bound<'py, PyDict>> {
        let told = PyDict::new(py);
        for (name, count) in self.inner.counters() {
            told.set_item(name, count)?;
        }
        Ok(told)
    }
}

/// (queue, count, serialised `SendBatch.topic` fields).
pub type ToldSend = (u32, usize, Py<PyBytes>);

pub fn told(py: Python<'_>, send: Send) -> ToldSend {
    (send.queue, send.count, PyBytes::new(py, &send.topics).unbind())
}

#[pyclass(frozen, module = "snavio._native")]
struct Plan {
    ledger: Py<Ledger>,
    budget_ms: u32,
    sends: Vec<ToldSend>,
    escalated: usize,
    escalations: Py<PyBytes>,
    frame_code: u8,
    stale_used: bool,
    block: TelemetryBlock,
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
    fn sends(&self, py: Python<'_>) -> Vec<ToldSend> {
        self.sends.iter().map(|(queue, count, topics)| (*queue, *count, topics.clone_ref(py))).collect()
    }

    #[getter]
    fn escalated(&self) -> usize {
        self.escalated
    }

    #[getter]
    fn escalations(&self, py: Python<'_>) -> Py<PyBytes> {
        self.escalations.clone_ref(py)
    }

    #[getter]
    fn frame_code(&self) -> u8 {
        self.frame_code
    }

    #[getter]
    fn stale_used(&self) -> bool {
        self.stale_used
    }

    fn telemetry<'py>(&self, py: Python<'py>, settled_unix_ns: i64) -> Bound<'py, PyBytes> {
        let ledger = self.ledger.get();
        let written = py.detach(|| {
            let ledger = ledger.lock();
            self.block.write_as(settled_unix_ns, |row| ledger.code(row.index as usize))
        });
        PyBytes::new(py, &written)
    }
}
